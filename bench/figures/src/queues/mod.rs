//! The posts on the Summarizer: queues between threads, and events from parsers to summaries.
//!
//! ```text
//! producers ─ boxed items ─→ queue of 2048 ─→ consumers     queues, queues-third
//! source ─ batches ─→ parsers ─→ workers ─→ windows         queues-events
//! ```

mod channel;
mod events;
mod locked;
mod rings;
mod run;
mod two_locks;

pub use self::{
    events::draw as draw_events,
    run::{draw, draw_third, queues},
};

/// Default folder for results.
const FOLDER: &str = "results/queues";
/// Number of items that a queue holds, as in the post.
const CAPACITY: usize = 2048;
/// Number of items in a batch.
const BATCH: usize = 64;
/// Largest number of producers and of consumers, or of parsers and of workers.
const THREADS_MAX: usize = 4;

/// An item: 32 bytes of its own, as an event is that was parsed.
type Item = Box<[u64; 4]>;

/// The end of a queue that items are put into. A producer that is dropped will put no more.
trait Producer: Send {
    /// Puts an item; waits while the queue is full.
    fn put(&mut self, item: Item);
}

/// The end of a queue that items are taken from.
trait Consumer: Send {
    /// Takes an item; waits while the queue is empty. `None` if all producers were dropped and all items taken.
    fn take(&mut self) -> Option<Item>;
}

/// The ends of a queue, one for each thread.
struct Ends {
    producers: Vec<Box<dyn Producer>>,
    consumers: Vec<Box<dyn Consumer>>,
}

/// A kind of queue.
struct Kind {
    name: &'static str,
    /// Whether the pipeline of the library works like this.
    is_ours: bool,
    /// Makes a queue for so many producers and consumers.
    new: fn(usize, usize) -> Ends,
}

const KINDS: [Kind; 5] = [
    Kind { name: "mutex and condition variables", is_ours: false, new: locked::new },
    Kind { name: "two locks", is_ours: false, new: two_locks::new },
    Kind { name: "a ring for each pair", is_ours: false, new: rings::new },
    Kind { name: "crossbeam-channel", is_ours: false, new: channel::new },
    Kind { name: "crossbeam-channel, batches of 64", is_ours: true, new: channel::new_batched },
];
