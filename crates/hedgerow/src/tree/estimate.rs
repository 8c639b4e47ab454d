//! About how many records, and bytes, lie between two keys: by their two paths, and a sample of the leaves between.
//!
//! A path tells how many children lie beside it, inside of the range, at each level. Those of one node are a *run*. Leaves get a fixed
//! number of looks, [`LOOKS`], which are shared out among the runs by the leaves that they are likely to have. A run of leaves that gets as
//! many looks as it has leaves is counted. Any other is cut into equal parts, one for each look, that goes down in the middle of its part,
//! as far along in each node as the part's middle lies. The leaf that it comes to stands for as many as the nodes on the way had children
//! (Knuth, "Estimating the efficiency of backtrack programs", 1975): so a look at any leaf counts for what it is likely to stand for, and
//! no bias comes from nodes of different size.
//!
//! Each look is a descent of its own, so changes meanwhile never make the call start over; it is of no one moment. Records of the two
//! leaves at the ends are counted. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::{Target, plain};
use super::retry::{Retry, Stop};
use super::value_stats::ValueStats;
use crate::error::Result;
use crate::node::{ChildPosition, Leaf, Node, plain_leaf};
use crate::page::{Access, Pages, Restart};
use crate::types::PageId;
use crate::wait::Waiting;
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Bound;

/// Leaves that are looked at beside the two at the ends; each run gets one at least, so a few more of a high tree.
const LOOKS: usize = 32;

/// How much lies between two keys.
#[derive(Clone, Copy, Default, Debug)]
pub struct Estimate {
    /// Records.
    pub records: f64,
    /// Bytes of keys and of values, if they were asked for.
    pub bytes: f64,
}

/// What of a leaf is counted.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Bytes, too.
    pub bytes: bool,
    /// Bytes of a unit of the file; 0 in a store that lives in memory.
    pub unit_bytes: u32,
}

/// Keys from where to where.
#[derive(Clone, Copy, Debug)]
struct Bounds<'k> {
    from: Bound<&'k [u8]>,
    to: Bound<&'k [u8]>,
}

const ALL: Bounds<'static> = Bounds { from: Bound::Unbounded, to: Bound::Unbounded };

/// How a descent finds its way.
#[derive(Clone, Copy)]
enum Way<'w> {
    /// By keys.
    To(Target<'w>),
    /// By the children at the top, and then as far along in each node as `at` is in its first: child, and part of that.
    Along { above: &'w [Step], at: f64 },
}

/// A node on a way down, and the child that was taken.
#[derive(Clone, Copy, Debug)]
struct Step {
    children: usize,
    index: usize,
}

/// A way down to a leaf, whose bytes are copied.
#[derive(Default)]
struct Found {
    steps: Vec<Step>,
    leaf: Option<PageId>,
    bytes: Vec<u8>,
}

/// Children of one node that lie in the range.
struct Run<'s> {
    above: &'s [Step],
    first: usize,
    children: usize,
    /// Leaves below one of them, about.
    leaves: f64,
}

impl Way<'_> {
    /// The child at `depth`. `along`: how far along in its node it is to be, which the last step has left.
    fn child<B: PageBytes>(self, node: &Node<B>, depth: usize, along: &mut f64) -> ChildPosition {
        let (above, at) = match self {
            Way::To(target) => return target.child(node),
            Way::Along { above, at } => (above, at),
        };
        let position = match above.get(depth) {
            Some(step) => step.index as f64,
            None if depth == above.len() => at,
            None => *along * (node.count() + 1) as f64,
        };
        let index = (position as usize).min(node.count());
        *along = (position - index as f64).clamp(0.0, 1.0);
        ChildPosition { index, child: node.child_at(index) }
    }
}

/// Errors: those of reading a page; `KeyspaceDropped`; `Corrupted`; `Timeout`.
impl<P: Pages> Tree<P> {
    /// About how much lies between two keys. Exact where no more than [`LOOKS`] leaves lie between those at the ends, all below the same
    /// node, and nobody changes them meanwhile.
    pub fn estimate(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        measure: Measure,
    ) -> Result<Estimate> {
        let waiting = self.wait.begin();
        let bounds = Bounds { from, to };
        let first = match from {
            Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
            Bound::Unbounded => Target::Key(b""),
        };
        let last = match to {
            Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
            Bound::Unbounded => Target::Last,
        };
        let (mut low, mut high) = (Found::default(), Found::default());
        let mut retry = None;
        loop {
            self.go_down(Way::To(first), &mut low, &waiting)?;
            self.go_down(Way::To(last), &mut high, &waiting)?;
            // Unless pages were split or merged between the two.
            if low.steps.len() == high.steps.len()
                && (low.leaf == high.leaf) == (fork(&low.steps, &high.steps) == low.steps.len())
            {
                break;
            }
            retry
                .get_or_insert_with(|| Retry::new(&*self.pool, self.root, Access::Point, &waiting))
                .after(Restart::Conflict)?;
        }
        if low.leaf == high.leaf {
            return Ok(sum(&mut low.bytes, bounds, measure));
        }
        let mut estimate = sum(&mut low.bytes, Bounds { from, ..ALL }, measure);
        estimate.add(sum(&mut high.bytes, Bounds { to, ..ALL }, measure), 1.0);
        let runs = runs(&low.steps, &high.steps);
        let leaves: f64 = runs.iter().map(Run::leaves).sum();
        let mut found = Found::default();
        for run in &runs {
            let share = LOOKS as f64 * run.leaves() / leaves.max(1.0);
            let is_of_leaves = run.above.len() + 1 == low.steps.len();
            let looks = match share.ceil() as usize {
                enough if is_of_leaves && enough >= run.children => run.children,
                looks => looks.clamp(1, LOOKS),
            };
            let part = run.children as f64 / looks as f64;
            for look in 0..looks {
                let at = run.first as f64 + (look as f64 + 0.5) * part;
                self.go_down(Way::Along { above: run.above, at }, &mut found, &waiting)?;
                let below = found.steps.iter().skip(run.above.len() + 1);
                let stands_for: f64 = below.map(|step| step.children as f64).product();
                estimate.add(sum(&mut found.bytes, ALL, measure), part * stands_for);
            }
        }
        Ok(estimate)
    }

    /// Goes down to a leaf and copies it.
    fn go_down(&self, way: Way<'_>, found: &mut Found, waiting: &Waiting<'_>) -> Result<()> {
        let Err(restart) = self.try_down(way, found) else { return Ok(()) };
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, waiting);
        let mut stop = Stop::from(restart);
        loop {
            retry.after(stop)?;
            let tried = match retry.is_latched() {
                true => self.down_latched(way, found, &mut retry),
                false => self.try_down(way, found),
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(restart) => stop = Stop::from(restart),
            }
        }
    }

    fn try_down(&self, way: Way<'_>, found: &mut Found) -> Result<(), Restart> {
        found.steps.clear();
        let mut along = 0.0;
        let (mut page, mut level) = self.open_root()?;
        while level > 0 {
            page.note_use();
            level -= 1;
            let node = Node::new(page.bytes());
            let taken = way.child(&node, found.steps.len(), &mut along);
            found.steps.push(Step { children: node.count() + 1, index: taken.index });
            page = self.open_child(taken.child, &page, level)?;
        }
        found.bytes.resize(self.pool.page_bytes(), 0);
        page.bytes().copy(0, &mut found.bytes);
        found.leaf = Some(page.id());
        page.validate()
    }

    #[cold]
    fn down_latched(
        &self,
        way: Way<'_>,
        found: &mut Found,
        retry: &mut Retry<'_, P>,
    ) -> Result<(), Restart> {
        found.steps.clear();
        let mut along = 0.0;
        let (mut page, mut level) = self.share_root(retry.patience())?;
        while level > 0 {
            level -= 1;
            let node = plain(page.bytes());
            let taken = way.child(&node, found.steps.len(), &mut along);
            found.steps.push(Step { children: node.count() + 1, index: taken.index });
            page = self.share_child(taken.child, level, retry.patience())?;
        }
        found.bytes.clear();
        found.bytes.extend_from_slice(page.bytes());
        found.leaf = Some(page.id());
        Ok(())
    }
}

/// The depth at which two ways part.
fn fork(low: &[Step], high: &[Step]) -> usize {
    low.iter().zip(high).take_while(|(low, high)| low.index == high.index).count()
}

/// The runs between two ways down that part.
fn runs<'s>(low: &'s [Step], high: &'s [Step]) -> Vec<Run<'s>> {
    let (height, fork) = (low.len(), fork(low, high));
    // Leaves below a child of a node at each depth.
    let mut leaves = vec![1.0; height];
    for depth in (1..height).rev() {
        let children = (low[depth].children + high[depth].children) as f64 / 2.0;
        leaves[depth - 1] = leaves[depth] * children;
    }
    let mut runs = Vec::new();
    let mut run = |above: &'s [Step], first: usize, end: usize| {
        if first < end {
            let leaves = leaves[above.len()];
            runs.push(Run { above, first, children: end - first, leaves });
        }
    };
    run(&low[..fork], low[fork].index + 1, high[fork].index);
    for depth in fork + 1..height {
        run(&low[..depth], low[depth].index + 1, low[depth].children);
        run(&high[..depth], 0, high[depth].index);
    }
    runs
}

impl Run<'_> {
    fn leaves(&self) -> f64 {
        self.children as f64 * self.leaves
    }
}

impl Estimate {
    fn add(&mut self, other: Estimate, times: f64) {
        self.records += times * other.records;
        self.bytes += times * other.bytes;
    }
}

/// Counts what a leaf has between two keys that lead to it. Puts its copy in order.
fn sum(leaf: &mut [u8], bounds: Bounds<'_>, measure: Measure) -> Estimate {
    Leaf::put_in_order(leaf);
    let page_bytes = leaf.len();
    let leaf = plain_leaf(leaf);
    // The first place that is not below a key, or not up to it.
    let place = |key: &[u8], behind: bool| {
        let at = leaf.search(key);
        at.index + usize::from(behind && at.found)
    };
    let mut at = match bounds.from {
        Bound::Included(key) => place(key, false),
        Bound::Excluded(key) => place(key, true),
        Bound::Unbounded => 0,
    };
    let end = match bounds.to {
        Bound::Included(key) => place(key, true),
        Bound::Excluded(key) => place(key, false),
        Bound::Unbounded => leaf.end(),
    };
    let (mut records, mut key_bytes) = (0_u64, 0);
    let mut values = ValueStats::default();
    let mut value = Vec::new();
    loop {
        at = leaf.next_place(at);
        if at >= end {
            break;
        }
        records += 1;
        if measure.bytes {
            value.clear();
            leaf.append_value(at, &mut value);
            values.add(&value, page_bytes, measure.unit_bytes);
            key_bytes += leaf.key_len(at) as u64;
        }
        at += 1;
    }
    Estimate { records: records as f64, bytes: (key_bytes + values.bytes()) as f64 }
}
