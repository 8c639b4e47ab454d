//! A subscriber that keeps the events of one thread, for tests of what the engine tells.
//!
//! `Send + Sync`; other threads may have subscribers of their own meanwhile.

use hedgerow_sync::primitive::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What an event says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Such as `hedgerow::open`.
    pub target: &'static str,
    /// How important it is.
    pub level: Level,
    /// All fields, the message among them.
    pub fields: BTreeMap<&'static str, String>,
}

impl Seen {
    /// A field that is a number.
    ///
    /// Panics: there is no such field, or it is no number.
    pub fn number(&self, name: &str) -> u64 {
        self.fields[name].parse().expect("a number")
    }

    /// The names of all fields, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.fields.keys().copied().collect()
    }
}

/// The events that this thread emits in `run`.
pub fn events_of(run: impl FnOnce()) -> Vec<Seen> {
    // `tracing` remembers of each event whether anybody wants it. Other threads of the test program emit events without a subscriber,
    // and what they make it remember would hold for this thread, too. So there is one for all threads. All calls but the first
    // find it there.
    tracing::subscriber::set_global_default(Recorder(None)).ok();
    let seen = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Recorder(Some(seen.clone())), run);
    std::mem::take(&mut *seen.lock())
}

/// Keeps events, or ignores them.
#[derive(Clone)]
struct Recorder(Option<Arc<Mutex<Vec<Seen>>>>);

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("hedgerow")
    }

    fn event(&self, event: &Event<'_>) {
        let Some(seen) = &self.0 else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        seen.lock().push(Seen { target, level, fields: fields.0 });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("the engine has no spans")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
