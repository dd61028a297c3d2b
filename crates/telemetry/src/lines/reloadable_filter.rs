//! A filter of log levels that can change at run time.

use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::reload;

/// Levels that can change while the process runs, by [`reload`]. A bare [`reload::Layer`] takes its lock, which all threads share,
/// for each span and line. This filter takes it only to decide whether a call site is enabled, which `tracing` caches.
#[derive(Debug)]
pub struct ReloadableFilter<S>(reload::Layer<Targets, S>);

impl<S: Subscriber> ReloadableFilter<S> {
    /// Starts with these levels. The handle changes them.
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
    struct LineCounter(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for LineCounter {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The cached interest of call sites is global, so these tests must not run concurrently.
    static SERIAL: Mutex<()> = Mutex::new(());

    fn levels(level: Level) -> Targets {
        Targets::new().with_default(level)
    }

    fn log_two_lines() {
        tracing::info!("something");
        tracing::debug!("something more");
    }

    fn change_levels(handle: &reload::Handle<Targets, Registry>, count: &AtomicUsize) {
        for (level, lines) in [(Level::WARN, 0), (Level::DEBUG, 2), (Level::INFO, 1)] {
            handle.reload(levels(level)).unwrap();
            let before = count.load(Ordering::Relaxed);
            log_two_lines();
            assert_eq!(count.load(Ordering::Relaxed) - before, lines, "{level}");
        }
    }

    #[test]
    fn levels_of_all_layers_change() {
        let _serial = SERIAL.lock().unwrap();
        let (filter, handle) = ReloadableFilter::new(levels(Level::INFO));
        let counter = LineCounter::default();
        let count = Arc::clone(&counter.0);
        let all = registry().with(filter).with(counter);
        tracing::subscriber::with_default(all, || change_levels(&handle, &count));
    }

    #[test]
    fn levels_of_one_layer_change() {
        let _serial = SERIAL.lock().unwrap();
        let (filter, handle) = ReloadableFilter::new(levels(Level::INFO));
        let (filtered, unfiltered) = (LineCounter::default(), LineCounter::default());
        let (count, all) = (Arc::clone(&filtered.0), Arc::clone(&unfiltered.0));
        let layers = registry()
            .with(filtered.with_filter(filter))
            .with(unfiltered);
        tracing::subscriber::with_default(layers, || change_levels(&handle, &count));
        assert_eq!(all.load(Ordering::Relaxed), 6);
    }
}
