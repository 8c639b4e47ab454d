//! A tree as a picture: a row for each level, the root above, a box for each node, coloured by what it is
//! and filled as far as it is full.
//!
//! A row has at most [`MAX_BOXES`] boxes. Of a level with more nodes neighbours share a box, which is then
//! divided by kinds in proportion, each with its mean fill, and the row's caption says how many nodes a
//! box stands for. Lines from parents to children are drawn only between rows in which every node has
//! its own box. Nothing is left out: every node is in exactly one box.
//!
//! Invariant: nodes are added parents first, children in the order of their keys, as a walk shows them.

use crate::size::{show_bytes, show_count};
use hedgerow::{PageId, PageKind, PageView};
use std::fmt::Write;

/// Most boxes in a row.
const MAX_BOXES: usize = 360;
/// Width of the rows, in pixels.
const ROW_WIDTH: f64 = 1440.0;
/// Left and right of the rows.
const MARGIN: f64 = 20.0;
/// Height of a box.
const BOX_HEIGHT: f64 = 44.0;
/// From one row to the next.
const ROW_STEP: f64 = 110.0;
/// Above the first caption.
const TOP: f64 = 110.0;
/// Between two boxes, where there is room for that.
const BETWEEN: f64 = 1.0;
/// Widest box: a root need not be as wide as the picture.
const MAX_BOX_WIDTH: f64 = 90.0;

/// What a node is, as far as the picture is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Inner,
    Comparison,
    Fingerprint,
    SemiDense,
    FullyDense,
    Damaged,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Inner,
        Kind::Comparison,
        Kind::Fingerprint,
        Kind::SemiDense,
        Kind::FullyDense,
        Kind::Damaged,
    ];

    fn of(kind: PageKind) -> Kind {
        match kind {
            PageKind::Inner => Kind::Inner,
            PageKind::ComparisonLeaf => Kind::Comparison,
            PageKind::FingerprintLeaf => Kind::Fingerprint,
            PageKind::SemiDenseLeaf => Kind::SemiDense,
            PageKind::FullyDenseLeaf => Kind::FullyDense,
            _ => Kind::Damaged,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Inner => PageKind::Inner.name(),
            Kind::Comparison => PageKind::ComparisonLeaf.name(),
            Kind::Fingerprint => PageKind::FingerprintLeaf.name(),
            Kind::SemiDense => PageKind::SemiDenseLeaf.name(),
            Kind::FullyDense => PageKind::FullyDenseLeaf.name(),
            Kind::Damaged => "damaged page",
        }
    }

    /// Colours that people with any colour vision tell apart (Okabe and Ito).
    fn colour(self) -> &'static str {
        match self {
            Kind::Inner => "#777777",
            Kind::Comparison => "#0072b2",
            Kind::Fingerprint => "#e69f00",
            Kind::SemiDense => "#56b4e9",
            Kind::FullyDense => "#009e73",
            Kind::Damaged => "#d55e00",
        }
    }
}

/// What the picture shows of a page that is sound.
pub struct Sound {
    kind: Kind,
    level: usize,
    fill: f32,
    keys: u32,
}

impl Sound {
    /// `None`: the page is damaged.
    pub fn of(view: &PageView<'_>) -> Option<Sound> {
        let len_bytes = view.bytes.map_or(1, <[u8]>::len);
        Some(Sound {
            kind: Kind::of(view.kind()?),
            level: usize::from(view.level()?),
            fill: (view.used_bytes()? as f32 / len_bytes as f32).min(1.0),
            keys: u32::try_from(view.count()?).ok()?,
        })
    }
}

/// A node of the tree.
struct Node {
    id: PageId,
    kind: Kind,
    /// Used part of the page, from 0 to 1; zero if that is not known.
    fill: f32,
    keys: u32,
    /// Index in the row above; zero in the highest.
    parent: usize,
}

/// See the head of the file.
pub struct Picture {
    name: String,
    page_bytes: usize,
    /// By level, leaves first.
    levels: Vec<Vec<Node>>,
    /// Levels of the nodes from the root to the last one.
    path: Vec<usize>,
}

impl Picture {
    /// Of a keyspace of which nothing was seen yet.
    pub fn new(name: &str, page_bytes: usize) -> Picture {
        Picture { name: name.to_owned(), page_bytes, levels: Vec::new(), path: Vec::new() }
    }

    /// Adds the next node. A page that cannot be read, or is not what its place asks for, stands on the
    /// level below the last inner node.
    pub fn add(&mut self, id: PageId, page: Option<Sound>) {
        let below = || self.path.last().map_or(0, |&level| level.saturating_sub(1));
        let level = page.as_ref().map_or_else(below, |page| page.level);
        while self.path.last().is_some_and(|&last| last <= level) {
            self.path.pop();
        }
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        let above = self.levels.get(level + 1).map_or(0, Vec::len);
        let parent = above.saturating_sub(1);
        let node = match page {
            Some(Sound { kind, fill, keys, .. }) => Node { id, kind, fill, keys, parent },
            None => Node { id, kind: Kind::Damaged, fill: 0.0, keys: 0, parent },
        };
        self.levels[level].push(node);
        if level > 0 {
            self.path.push(level);
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.levels.iter().map(|level| level.len() as u64).sum()
    }

    /// Number of damaged ones.
    pub fn damaged(&self) -> u64 {
        let all = self.levels.iter().flatten();
        all.filter(|node| node.kind == Kind::Damaged).count() as u64
    }

    /// The picture as SVG.
    pub fn draw(&self) -> String {
        let (width, rows) = (ROW_WIDTH + 2.0 * MARGIN, self.levels.len() as f64);
        let height = TOP + rows * ROW_STEP;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        self.head(&mut svg);
        for (row, level) in (0..self.levels.len()).rev().enumerate() {
            self.row(&mut svg, level, TOP + row as f64 * ROW_STEP);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Title and legend.
    fn head(&self, svg: &mut String) {
        let (name, page) = (escape_xml(&self.name), show_bytes(self.page_bytes as u64));
        let (nodes, levels) = (show_count(self.nodes()), self.levels.len());
        text(
            svg,
            (MARGIN, 28.0),
            &format!("Keyspace {name}: {nodes} nodes of {page} on {levels} levels"),
        );
        text(svg, (MARGIN, 48.0), "The coloured part of a box is the used part of its page.");
        let mut x = MARGIN;
        for kind in Kind::ALL {
            let all: Vec<_> =
                self.levels.iter().flatten().filter(|node| node.kind == kind).collect();
            if all.is_empty() {
                continue;
            }
            let fill = all.iter().map(|node| f64::from(node.fill)).sum::<f64>() / all.len() as f64;
            let count = show_count(all.len() as u64);
            let label = match kind {
                Kind::Damaged => format!("{}: {count}", kind.name()),
                _ => format!("{}: {count}, {:.0}% full", kind.name(), 100.0 * fill),
            };
            rectangle(svg, (x, 62.0, 14.0, 14.0), kind.colour(), 1.0);
            text(svg, (x + 20.0, 74.0), &label);
            x += 40.0 + 7.5 * label.len() as f64;
        }
    }

    fn row(&self, svg: &mut String, level: usize, y: f64) {
        let nodes = &self.levels[level];
        let boxes = nodes.len().min(MAX_BOXES);
        if boxes == 0 {
            return;
        }
        text(svg, (MARGIN, y + 12.0), &caption(level, nodes.len(), boxes));
        let above = self.levels.get(level + 1).filter(|above| above.len() <= MAX_BOXES);
        let each = box_width(boxes);
        for index in 0..boxes {
            let group = &nodes[index * nodes.len() / boxes..(index + 1) * nodes.len() / boxes];
            let x = box_left(boxes, index);
            if let Some(above) = above.filter(|_| nodes.len() == boxes) {
                let (from, to) = (box_middle(above.len(), group[0].parent), x + each / 2.0);
                let (bottom, top) = (y + 22.0 + BOX_HEIGHT - ROW_STEP, y + 22.0);
                // The caption stands between the rows; a thin line under it does no harm.
                let _ = writeln!(
                    svg,
                    "<line x1=\"{from:.1}\" y1=\"{bottom:.1}\" x2=\"{to:.1}\" y2=\"{top:.1}\" \
                     stroke=\"#cccccc\" stroke-width=\"0.6\"/>"
                );
            }
            draw_box(svg, group, (x, y + 22.0, each));
        }
    }
}

/// What a row is, and what its boxes stand for.
fn caption(level: usize, nodes: usize, boxes: usize) -> String {
    let what = match (level, nodes) {
        (0, 1) => "leaf",
        (0, _) => "leaves",
        (_, 1) => "inner node",
        _ => "inner nodes",
    };
    let count = show_count(nodes as u64);
    let (few, many) = (nodes / boxes, nodes.div_ceil(boxes));
    match (few, many) {
        (1, 1) => format!("level {level}: {count} {what}"),
        _ if few == many => format!(
            "level {level}: {count} {what}; a box stands for {few} neighbours, with their mean fill by kind"
        ),
        _ => format!(
            "level {level}: {count} {what}; a box stands for {few} or {many} neighbours, with their mean fill by kind"
        ),
    }
}

fn box_width(boxes: usize) -> f64 {
    let room = ROW_WIDTH / boxes as f64;
    (if room > 3.0 { room - BETWEEN } else { room }).min(MAX_BOX_WIDTH)
}

fn box_middle(boxes: usize, index: usize) -> f64 {
    MARGIN + (index as f64 + 0.5) * ROW_WIDTH / boxes as f64
}

fn box_left(boxes: usize, index: usize) -> f64 {
    box_middle(boxes, index) - box_width(boxes) / 2.0
}

/// One node, or neighbours: side by side a part for each kind, as wide as its share.
fn draw_box(svg: &mut String, group: &[Node], (x, y, width): (f64, f64, f64)) {
    let title = match group {
        [node] if node.kind == Kind::Damaged => format!("page {}: damaged", node.id.0),
        [node] => format!(
            "page {}: {}, {} keys, {:.0}% full",
            node.id.0,
            node.kind.name(),
            node.keys,
            100.0 * node.fill
        ),
        nodes => {
            let keys: u64 = nodes.iter().map(|node| u64::from(node.keys)).sum();
            format!("{} nodes, {} keys", nodes.len(), show_count(keys))
        }
    };
    let _ = writeln!(svg, "<g><title>{title}</title>");
    let mut left = x;
    for kind in Kind::ALL {
        let of_kind = group.iter().filter(|node| node.kind == kind);
        let (count, fills) =
            of_kind.fold((0, 0.0), |(count, sum), node| (count + 1, sum + f64::from(node.fill)));
        if count == 0 {
            continue;
        }
        let part = width * f64::from(count) / group.len() as f64;
        // What is damaged has no fill that could be trusted: it is marked over its whole height.
        let fill = if kind == Kind::Damaged { 1.0 } else { fills / f64::from(count) };
        let full = BOX_HEIGHT * fill;
        rectangle(svg, (left, y, part, BOX_HEIGHT), kind.colour(), 0.18);
        rectangle(svg, (left, y + BOX_HEIGHT - full, part, full), kind.colour(), 1.0);
        left += part;
    }
    svg.push_str("</g>\n");
}

fn rectangle(svg: &mut String, (x, y, w, h): (f64, f64, f64, f64), colour: &str, opacity: f64) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"{colour}\" \
         fill-opacity=\"{opacity}\"/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#222222\">{words}</text>");
}

/// The text of a keyspace's name, which may be any.
fn escape_xml(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '"' => text.push_str("&quot;"),
            c if c.is_control() => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: Kind, level: usize) -> Option<Sound> {
        Some(Sound { kind, level, fill: 0.5, keys: 7 })
    }

    /// A root over two inner nodes, with leaves below.
    fn tree(leaves: usize) -> Picture {
        let mut tree = Picture::new("a<b>&c", 4096);
        let leaf = |n: usize| match n % 3 {
            0 => page(Kind::Comparison, 0),
            1 => page(Kind::Fingerprint, 0),
            _ => page(Kind::FullyDense, 0),
        };
        tree.add(PageId(4), page(Kind::Inner, 2));
        for half in 0..2 {
            tree.add(PageId(5 + half), page(Kind::Inner, 1));
            for n in 0..leaves / 2 {
                tree.add(PageId(100 + n as u32), leaf(n));
            }
        }
        tree
    }

    #[test]
    fn a_small_tree_has_a_box_and_a_line_for_each_node() {
        let svg = tree(20).draw();
        assert_eq!(svg.matches("<g>").count(), 23);
        assert_eq!(svg.matches("<line").count(), 22);
        assert!(svg.contains("a&lt;b&gt;&amp;c") && svg.contains("level 0: 20 leaves<"), "{svg}");
        assert!(svg.contains("level 2: 1 inner node<") && svg.contains("fingerprint leaf: 6,"));
    }

    #[test]
    fn a_large_tree_is_aggregated_and_says_so() {
        let large = tree(3_000);
        let svg = large.draw();
        assert_eq!(large.nodes(), 3_003);
        assert_eq!(svg.matches("<g>").count(), MAX_BOXES + 3);
        assert_eq!(svg.matches("<line").count(), 2, "only to the inner nodes");
        assert!(svg.contains("3,000 leaves; a box stands for 8 or 9 neighbours"), "{svg}");
        assert!(svg.contains("<title>8 nodes, ") && svg.contains("<title>9 nodes, "));
    }

    #[test]
    fn damaged_pages_are_on_the_level_that_their_place_asks_for() {
        let mut tree = tree(4);
        tree.add(PageId(77), None);
        tree.add(PageId(78), None);
        assert_eq!((tree.damaged(), tree.levels[0].len(), tree.levels.len()), (2, 6, 3));
        let svg = tree.draw();
        assert!(svg.contains("page 77: damaged") && svg.contains("damaged page: 2<"), "{svg}");
    }

    #[test]
    fn an_empty_picture_is_a_picture() {
        assert!(Picture::new("none", 4096).draw().ends_with("</svg>\n"));
    }
}
