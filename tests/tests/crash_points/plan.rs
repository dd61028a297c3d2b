//! Plans of kills, passed to the service in files that `server/src/crash_points.rs` reads.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// An arrival at a crash point: its name (`before …` or `after …`), and the number of the arrival from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlannedCrash {
    pub(crate) place: String,
    pub(crate) number: usize,
}

impl PlannedCrash {
    /// Whether this is the first arrival before or after an operation.
    pub(crate) fn is_at(&self, operation: &str) -> bool {
        let own = self.place.split_once(' ').map(|(_, own)| own);
        self.number == 1 && own == Some(operation)
    }
}

impl fmt::Display for PlannedCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (time {})", self.place, self.number)
    }
}

/// The directory that the service reads.
pub(crate) struct PlanSet {
    dir: TempDir,
    count: usize,
}

impl PlanSet {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-plan-").tempdir();
        Self {
            dir: dir.expect("a temporary directory can be made"),
            count: 0,
        }
    }

    /// The value of `CRASH_POINTS_DIR`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Lets the service record arrivals, and kill itself at this point if there is one.
    pub(crate) fn arm(&mut self, point: Option<&PlannedCrash>) {
        self.count += 1;
        let (number, name) = point.map_or((0, "nowhere"), |point| (point.number, &point.place));
        let plan = format!("{}\n{number}\n{name}\n", self.count);
        let _ = fs::remove_file(self.dir().join("arrivals"));
        // Atomic: the service reads a complete plan or none.
        let unfinished = self.dir().join("plan.new");
        fs::write(&unfinished, plan).expect("the directory is writable");
        fs::rename(unfinished, self.dir().join("plan")).expect("the directory is writable");
    }

    /// Ends kills and records.
    pub(crate) fn disarm(&self) {
        // There may be no plan.
        let _ = fs::remove_file(self.dir().join("plan"));
    }

    /// The arrivals since [`Self::arm`], in order.
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

/// Pseudorandom numbers, equal in every run (Knuth's constants of MMIX).
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

/// At most `max` of these in their order, selected by the seed.
pub(crate) fn sample(all: Vec<PlannedCrash>, max: usize, seed: u64) -> Vec<PlannedCrash> {
    let mut dice = SeededRandom(seed);
    let mut chosen: Vec<_> = all.into_iter().enumerate().collect();
    while chosen.len() > max {
        chosen.swap_remove(dice.roll(chosen.len()));
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, point)| point).collect()
}

#[test]
fn a_sample_keeps_the_order_and_depends_on_the_seed() {
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
