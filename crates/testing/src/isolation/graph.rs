//! Directed graphs of many nodes: strongly connected components, and the shortest cycle in them.
//!
//! Components by Tarjan ("Depth-first search and linear graph algorithms"), with a stack of its own instead of the
//! thread's. The shortest cycle by a search in breadth from one node after the other, in which some edges cost nothing.
//!
//! Invariants: `edges[starts[n]..starts[n + 1]]` leave node `n`. Thread-safety: plain data.

use std::collections::VecDeque;

/// No node, no edge.
const NONE: u32 = u32::MAX;
/// Nodes from which a shortest cycle is sought, in all components together.
const MOST_STARTS: usize = 400;

/// An edge, as it is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// What the caller knows it by.
    pub(super) label: u32,
    /// Whether it makes a cycle longer.
    pub(super) counts: bool,
}

/// A graph that does not change.
pub(super) struct Graph {
    starts: Vec<u32>,
    edges: Vec<(u32, u32)>,
    /// A bit for each edge.
    counts: Vec<bool>,
}

impl Graph {
    /// Of nodes below `nodes`.
    pub(super) fn new(nodes: usize, given: &[Edge]) -> Graph {
        let mut starts = vec![0_u32; nodes + 1];
        for edge in given {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut edges = vec![(0, 0); given.len()];
        let mut counts = vec![false; given.len()];
        for edge in given {
            let at = next[edge.from as usize] as usize;
            next[edge.from as usize] += 1;
            edges[at] = (edge.to, edge.label);
            counts[at] = edge.counts;
        }
        Graph { starts, edges, counts }
    }

    fn leaving(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// The components of more than one node, each in no order. (No edge leads from a node to itself.)
    pub(super) fn cyclic_components(&self) -> Vec<Vec<u32>> {
        let nodes = self.starts.len() - 1;
        let mut found = Vec::new();
        // The order in which nodes were met, the earliest one that is reached from each, and whether it is in a component.
        let (mut met, mut low) = (vec![NONE; nodes], vec![NONE; nodes]);
        let mut done = vec![false; nodes];
        let mut open: Vec<u32> = Vec::new();
        let mut path: Vec<(u32, usize)> = Vec::new();
        let mut count = 0;
        for root in 0..nodes as u32 {
            if met[root as usize] != NONE {
                continue;
            }
            (met[root as usize], low[root as usize]) = (count, count);
            count += 1;
            open.push(root);
            path.push((root, self.leaving(root).start));
            while let Some((node, at)) = path.last_mut() {
                let node = *node;
                if *at < self.leaving(node).end {
                    let next = self.edges[*at].0;
                    *at += 1;
                    if met[next as usize] == NONE {
                        (met[next as usize], low[next as usize]) = (count, count);
                        count += 1;
                        open.push(next);
                        path.push((next, self.leaving(next).start));
                    } else if !done[next as usize] {
                        low[node as usize] = low[node as usize].min(met[next as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some((above, _)) = path.last() {
                    low[*above as usize] = low[*above as usize].min(low[node as usize]);
                }
                if low[node as usize] == met[node as usize] {
                    let from = open.iter().rposition(|open| *open == node);
                    let component = open.split_off(from.expect("a node is open until it is done"));
                    for node in &component {
                        done[*node as usize] = true;
                    }
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
            }
        }
        found
    }

    /// The labels of the edges of the shortest cycle that is found within the components, which are cyclic.
    pub(super) fn shortest_cycle(&self, components: &[Vec<u32>]) -> Vec<u32> {
        let nodes = self.starts.len() - 1;
        let mut component_of = vec![NONE; nodes];
        for (number, component) in components.iter().enumerate() {
            for node in component {
                component_of[*node as usize] = number as u32;
            }
        }
        let mut search = Search {
            graph: self,
            component_of,
            reached: vec![(NONE, NONE, NONE); nodes],
            touched: Vec::new(),
        };
        let mut by_size: Vec<_> = components.iter().collect();
        by_size.sort_by_key(|component| component.len());
        let starts = by_size.into_iter().flatten().take(MOST_STARTS);
        let mut best: Option<(u32, Vec<u32>)> = None;
        for start in starts {
            let limit = best.as_ref().map_or(NONE, |(length, _)| *length);
            if let Some(shorter) = search.from(*start, limit) {
                best = Some(shorter);
            }
        }
        best.map(|(_, labels)| labels).unwrap_or_default()
    }
}

struct Search<'g> {
    graph: &'g Graph,
    component_of: Vec<u32>,
    /// Of each node the length of the way to it, the edge that it ends with, and where that comes from.
    reached: Vec<(u32, u32, u32)>,
    touched: Vec<u32>,
}

impl Search<'_> {
    /// The shortest cycle through `start`, if it is shorter than `limit`.
    fn from(&mut self, start: u32, limit: u32) -> Option<(u32, Vec<u32>)> {
        let graph = self.graph;
        for node in self.touched.drain(..) {
            self.reached[node as usize] = (NONE, NONE, NONE);
        }
        // `start` itself stays unreached until the cycle is closed.
        let mut front = VecDeque::from([(start, 0)]);
        while let Some((node, length)) = front.pop_front() {
            if node == start && self.reached[start as usize].0 != NONE {
                break;
            }
            if node != start && length > self.reached[node as usize].0 {
                continue;
            }
            for at in graph.leaving(node) {
                let (to, _) = graph.edges[at];
                if self.component_of[to as usize] != self.component_of[start as usize] {
                    continue;
                }
                let counts = graph.counts[at];
                let to_length = length + u32::from(counts);
                if to_length >= limit || to_length >= self.reached[to as usize].0 {
                    continue;
                }
                self.reached[to as usize] = (to_length, at as u32, node);
                self.touched.push(to);
                match counts {
                    true => front.push_back((to, to_length)),
                    false => front.push_front((to, to_length)),
                }
            }
        }
        let (length, ..) = self.reached[start as usize];
        if length == NONE {
            return None;
        }
        let (mut labels, mut node) = (Vec::new(), start);
        loop {
            let (_, at, before) = self.reached[node as usize];
            labels.push(graph.edges[at as usize].1);
            node = before;
            if node == start {
                break;
            }
        }
        labels.reverse();
        Some((length, labels))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    fn graph(nodes: usize, edges: &[(u32, u32)]) -> Graph {
        let edge = |(label, &(from, to)): (usize, &(u32, u32))| Edge {
            from,
            to,
            label: label as u32,
            counts: true,
        };
        Graph::new(nodes, &edges.iter().enumerate().map(edge).collect::<Vec<_>>())
    }

    #[test]
    fn components_and_shortest_cycles_are_those_of_a_search_of_everything() {
        for seed in 0..400 {
            let mut random = SplitMix64::new(seed);
            let nodes = 1 + random.below(9) as usize;
            let edges: Vec<(u32, u32)> = (0..random.below(16))
                .map(|_| (random.below(nodes as u64) as u32, random.below(nodes as u64) as u32))
                .filter(|(from, to)| from != to)
                .collect();
            // The lengths of the shortest ways, by trying every node in between.
            let mut ways = vec![vec![99_u32; nodes]; nodes];
            for (from, to) in &edges {
                ways[*from as usize][*to as usize] = 1;
            }
            for via in 0..nodes {
                for from in 0..nodes {
                    for to in 0..nodes {
                        let round = ways[from][via] + ways[via][to];
                        ways[from][to] = ways[from][to].min(round);
                    }
                }
            }
            let graph = graph(nodes, &edges);
            let components = graph.cyclic_components();
            let mut cyclic: Vec<u32> = components.concat();
            cyclic.sort_unstable();
            let expected: Vec<u32> =
                (0..nodes as u32).filter(|n| ways[*n as usize][*n as usize] < 99).collect();
            assert_eq!(cyclic, expected, "seed {seed}");
            for component in &components {
                for a in component {
                    for b in component {
                        assert!(ways[*a as usize][*b as usize] < 99, "seed {seed}");
                    }
                }
            }
            let cycle = graph.shortest_cycle(&components);
            let shortest = (0..nodes).map(|n| ways[n][n]).min().filter(|length| *length < 99);
            assert_eq!(cycle.len() as u32, shortest.unwrap_or(0), "seed {seed}");
            for (at, label) in cycle.iter().enumerate() {
                let next = cycle[(at + 1) % cycle.len()];
                assert_eq!(edges[*label as usize].1, edges[next as usize].0, "seed {seed}");
            }
        }
    }

    #[test]
    fn edges_that_do_not_count_do_not_make_a_cycle_longer() {
        let edge = |from, to, label, counts| Edge { from, to, label, counts };
        // Two cycles through node 0: of two edges that count, and of four of which one does.
        let given = [
            edge(0, 1, 0, true),
            edge(1, 0, 1, true),
            edge(0, 2, 2, true),
            edge(2, 3, 3, false),
            edge(3, 4, 4, false),
            edge(4, 0, 5, false),
        ];
        let graph = Graph::new(5, &given);
        let components = graph.cyclic_components();
        assert_eq!(components.len(), 1);
        let mut cycle = graph.shortest_cycle(&components);
        cycle.sort_unstable();
        assert_eq!(cycle, [2, 3, 4, 5]);
    }

    #[test]
    fn a_way_as_long_as_the_graph_needs_no_stack_of_the_thread() {
        let nodes = 300_000;
        let mut edges: Vec<(u32, u32)> = (1..nodes).map(|node| (node - 1, node)).collect();
        assert!(graph(nodes as usize, &edges).cyclic_components().is_empty());
        edges.push((nodes - 1, 0));
        let graph = graph(nodes as usize, &edges);
        let components = graph.cyclic_components();
        assert_eq!(components[0].len(), nodes as usize);
    }
}
