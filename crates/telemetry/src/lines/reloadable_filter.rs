//! A filter of log levels that can change at run time.

use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::reload;

/// Levels that may change while the process runs, by [`reload`]. That alone takes its lock, which all threads share, at each step
/// of each span and line; here only the question whether something is wanted does, which is asked once for each place in the
/// code and not for each line.
#[derive(Debug)]
pub struct ReloadableFilter<S>(reload::Layer<Targets, S>);

impl<S: Subscriber> ReloadableFilter<S> {
    /// These, until the handle says otherwise.
    #[must_use]
    pub fn new(levels: Targets) -> (Self, reload::Handle<Targets, S>) {
        let (layer, handle) = reload::Layer::new(levels);
        (Self(layer), handle)
    }
}

impl<S: Subscriber> Layer<S> for ReloadableFilter<S> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::register_callsite(&self.0, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, ctx: Context<'_, S>) -> bool {
        Layer::enabled(&self.0, metadata, ctx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::max_level_hint(&self.0)
    }
}

impl<S: Subscriber> Filter<S> for ReloadableFilter<S> {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        Filter::callsite_enabled(&self.0, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, ctx: &Context<'_, S>) -> bool {
        Filter::enabled(&self.0, metadata, ctx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::max_level_hint(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Level};
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{Registry, registry};

    use super::*;

    /// Counts lines.
    #[derive(Default)]
    struct Counted(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Counted {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is wanted of a place in the code is kept for the whole process, so these tests take turns.
    static TURN: Mutex<()> = Mutex::new(());

    fn levels(level: Level) -> Targets {
        Targets::new().with_default(level)
    }

    fn say() {
        tracing::info!("something");
        tracing::debug!("something more");
    }

    fn changes(handle: &reload::Handle<Targets, Registry>, said: &AtomicUsize) {
        for (level, lines) in [(Level::WARN, 0), (Level::DEBUG, 2), (Level::INFO, 1)] {
            handle.reload(levels(level)).unwrap();
            let before = said.load(Ordering::Relaxed);
            say();
            assert_eq!(said.load(Ordering::Relaxed) - before, lines, "{level}");
        }
    }

    #[test]
    fn what_is_wanted_changes_while_it_runs() {
        let _turn = TURN.lock().unwrap();
        let (wanted, handle) = ReloadableFilter::new(levels(Level::INFO));
        let counted = Counted::default();
        let said = Arc::clone(&counted.0);
        let all = registry().with(wanted).with(counted);
        tracing::subscriber::with_default(all, || changes(&handle, &said));
    }

    #[test]
    fn also_of_one_layer_of_several() {
        let _turn = TURN.lock().unwrap();
        let (wanted, handle) = ReloadableFilter::new(levels(Level::INFO));
        let (counted, every) = (Counted::default(), Counted::default());
        let (said, all) = (Arc::clone(&counted.0), Arc::clone(&every.0));
        let layers = registry().with(counted.with_filter(wanted)).with(every);
        tracing::subscriber::with_default(layers, || changes(&handle, &said));
        assert_eq!(all.load(Ordering::Relaxed), 6);
    }
}
