//! Where the service is to die, told to it by files (`server/src/crash_points.rs` reads them).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// An arrival: the `number`th time (from 1) at a place, as the service calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlannedCrash {
    pub(crate) place: String,
    pub(crate) number: usize,
}

impl PlannedCrash {
    /// Whether it is before or after this deed, the first time.
    pub(crate) fn is_at(&self, deed: &str) -> bool {
        let of = self.place.split_once(' ').map(|(_, of)| of);
        self.number == 1 && of == Some(deed)
    }
}

impl fmt::Display for PlannedCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (time {})", self.place, self.number)
    }
}

/// The directory that the service looks into.
pub(crate) struct PlanSet {
    dir: TempDir,
    made: usize,
}

impl PlanSet {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-plan-").tempdir();
        Self {
            dir: dir.expect("a temporary directory can be made"),
            made: 0,
        }
    }

    /// For `CRASH_POINTS_DIR`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// From now on the service notes where it comes by, and dies at this point if there is one.
    pub(crate) fn arm(&mut self, point: Option<&PlannedCrash>) {
        self.made += 1;
        let place = point.map_or((0, "nowhere"), |point| (point.number, &point.place));
        let plan = format!("{}\n{}\n{}\n", self.made, place.0, place.1);
        let _ = fs::remove_file(self.dir().join("arrivals"));
        // In one step: the service reads all of it or nothing.
        let unfinished = self.dir().join("plan.new");
        fs::write(&unfinished, plan).expect("the directory is writable");
        fs::rename(unfinished, self.dir().join("plan")).expect("the directory is writable");
    }

    /// From now on it lives.
    pub(crate) fn disarm(&self) {
        // It may be disarmed already.
        let _ = fs::remove_file(self.dir().join("plan"));
    }

    /// Where it came by since it was armed, in this order.
    pub(crate) fn arrivals(&self) -> Vec<PlannedCrash> {
        let text = fs::read_to_string(self.dir().join("arrivals")).unwrap_or_default();
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        let numbered = text.lines().map(|place| {
            let number = times.entry(place).or_default();
            *number += 1;
            PlannedCrash {
                place: place.to_owned(),
                number: *number,
            }
        });
        numbered.collect()
    }
}

/// Numbers that look random and are the same in every run (the constants are Knuth's, of MMIX).
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }
}

/// At most so many of these, chosen by a number, in their order.
pub(crate) fn sample(all: Vec<PlannedCrash>, most: usize, seed: u64) -> Vec<PlannedCrash> {
    let mut dice = SeededRandom(seed);
    let mut chosen: Vec<_> = all.into_iter().enumerate().collect();
    while chosen.len() > most {
        chosen.swap_remove(dice.roll(chosen.len()));
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, point)| point).collect()
}

#[test]
fn a_sample_is_a_part_in_order_that_the_number_decides() {
    let points = |numbers: &[usize]| -> Vec<PlannedCrash> {
        let place = || "before x".to_owned();
        let point = |&number| PlannedCrash {
            place: place(),
            number,
        };
        numbers.iter().map(point).collect()
    };
    let all: Vec<usize> = (1..=100).collect();
    let some = sample(points(&all), 10, 1);
    assert_eq!(some.len(), 10);
    assert!(some.is_sorted());
    assert_eq!(some, sample(points(&all), 10, 1));
    assert_ne!(some, sample(points(&all), 10, 2));
    assert_eq!(sample(points(&all), 100, 1), points(&all));
}
