//! The plan: an offset for every value in one arena, and the exact peak, before anything is allocated.
//!
//! A value lives from the node that makes it to the last node that reads it. Values that live at the same time never overlap;
//! scratch that a kernel needs is a value that lives for one node. Where an op allows it and nobody reads the input afterwards,
//! the output takes over the input's storage.
//!
//! Offsets: storages are placed one by one, each at the lowest offset that is free for its whole life. Two orders are tried (largest
//! first; earliest first) and the smaller arena is taken. [`Plan::floor_bytes`] is what no placement can beat.

use crate::graph::{Graph, Meta, Node, NodeId, Source, ValueId};
use crate::ops::Op;

/// Every storage starts at a multiple of this (a cache line).
pub const ALIGNMENT: u64 = 64;

pub fn align(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// Where a value's bytes live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the leaf's own buffer (inputs, weights, parameters); `name` resolves it. A reshaped leaf has the leaf's place.
    Leaf(ValueId),
    /// At this offset of the arena.
    Arena(u64),
    /// Added into the gradient of this parameter.
    Gradient(ValueId),
}

/// Scratch bytes that a backend's kernel needs for a node.
pub type Scratch<'a> = &'a dyn Fn(&Op, &[&Meta], &[&Meta]) -> u64;

#[derive(Clone, Debug)]
pub struct Plan {
    /// One for each value of the graph.
    pub places: Vec<Place>,
    /// Offset and size of each node's scratch.
    pub scratch: Vec<(u64, u64)>,
    pub arena_bytes: u64,
    /// The most bytes that live at one time: no arena can be smaller.
    pub floor_bytes: u64,
    /// The node at which most bytes live.
    pub peak_node: Option<NodeId>,
    storages: Vec<Storage>,
}

/// A stretch of arena with a life, in node numbers (both ends included).
#[derive(Clone, Debug)]
struct Storage {
    bytes: u64,
    born: usize,
    dies: usize,
    offset: u64,
    /// A value kept in it, for the report; none for scratch.
    value: Option<ValueId>,
}

/// What holds memory at the peak.
#[derive(Clone, Debug)]
pub struct Holder {
    pub bytes: u64,
    /// Op that made the value, or that needs the scratch.
    pub op: String,
    pub segment: Option<String>,
    pub scratch: bool,
}

impl Plan {
    pub fn new(graph: &Graph, scratch: Scratch) -> Plan {
        let Lives { mut storages, places, storage_of, scratch_of } = Lives::new(graph, scratch);
        let (floor_bytes, peak_node) = most_alive(graph, &storages);
        let arena_bytes = place(&mut storages);
        let places = places
            .into_iter()
            .zip(&storage_of)
            .map(|(place, storage)| storage.map_or(place, |s| Place::Arena(storages[s].offset)))
            .collect();
        let scratch = scratch_of.iter().map(|s| (storages[*s].offset, storages[*s].bytes)).collect();
        Plan { places, scratch, arena_bytes, floor_bytes, peak_node, storages }
    }

    /// What lives at the peak, largest first.
    pub fn holders(&self, graph: &Graph) -> Vec<Holder> {
        let Some(NodeId(peak)) = self.peak_node else { return Vec::new() };
        let mut held: Vec<Holder> = self
            .storages
            .iter()
            .filter(|s| s.bytes > 0 && s.born <= peak as usize && peak as usize <= s.dies)
            .map(|s| {
                let node = match s.value.map(|v| &graph.value(v).source) {
                    Some(Source::Node { node, .. }) => graph.node(*node),
                    _ => graph.node(NodeId(s.born as u32)),
                };
                let segment = node.segment.map(|id| graph.segments[id.0 as usize].name.clone());
                Holder { bytes: s.bytes, op: node.op.name().into(), segment, scratch: s.value.is_none() }
            })
            .collect();
        held.sort_by_key(|h| std::cmp::Reverse(h.bytes));
        held
    }

    /// Bytes that live at each node.
    pub fn alive(&self, graph: &Graph) -> Vec<u64> {
        alive(graph, &self.storages)
    }

    /// Bytes that are made before `node` and live until it at least.
    pub fn across(&self, node: usize) -> u64 {
        self.storages.iter().filter(|s| s.born < node && node <= s.dies).map(|s| s.bytes).sum()
    }

    /// Checks that no two storages that live at the same time overlap, and that all stand inside the arena.
    pub fn verify(&self) -> Result<(), String> {
        let mut order: Vec<&Storage> = self.storages.iter().filter(|s| s.bytes > 0).collect();
        order.sort_by_key(|s| s.offset);
        for (i, a) in order.iter().enumerate() {
            if a.offset + a.bytes > self.arena_bytes || a.offset % ALIGNMENT != 0 {
                return Err(format!("{a:?} stands outside the arena of {} bytes or is not aligned", self.arena_bytes));
            }
            for b in order[i + 1..].iter().take_while(|b| b.offset < a.offset + a.bytes) {
                if a.born <= b.dies && b.born <= a.dies {
                    return Err(format!("{a:?} and {b:?} overlap"));
                }
            }
        }
        Ok(())
    }
}

/// The arena of a plan of `graph`, if it is at most `limit`; nothing is placed where what lives at one time is more already.
pub fn arena_within(graph: &Graph, scratch: Scratch, limit: u64) -> Option<u64> {
    let mut storages = Lives::new(graph, scratch).storages;
    let (floor, _) = most_alive(graph, &storages);
    (floor <= limit).then(|| place(&mut storages)).filter(|arena| *arena <= limit)
}

/// Every storage that a graph needs, not placed yet.
struct Lives {
    storages: Vec<Storage>,
    /// One for each value: where it lives if not in a storage, and its storage.
    places: Vec<Place>,
    storage_of: Vec<Option<usize>>,
    /// The storage of each node's scratch.
    scratch_of: Vec<usize>,
}

impl Lives {
    fn new(graph: &Graph, scratch: Scratch) -> Lives {
        let mut storages = Vec::new();
        let (places, storage_of) = assign_storages(graph, &mut storages);
        let nodes = graph.nodes.iter().enumerate();
        let scratch_of = nodes.map(|(i, node)| add_scratch(graph, i, node, scratch, &mut storages)).collect();
        Lives { storages, places, storage_of, scratch_of }
    }
}

/// The last node that reads each value; outputs of the graph are read after the last node.
fn last_reads(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().chain(&node.outputs).for_each(|v| last[v.0 as usize] = i);
    }
    graph.outputs.values().for_each(|v| last[v.0 as usize] = graph.nodes.len());
    // A reshaped value is another name for the same bytes: its readers are readers of the original.
    for node in graph.nodes.iter().rev().filter(|n| matches!(n.op, Op::Reshape(_))) {
        let (from, to) = (node.inputs[0].0 as usize, node.outputs[0].0 as usize);
        last[from] = last[from].max(last[to]);
    }
    last
}

/// Gives each value that a node makes a storage of its own or a share in an input's.
fn assign_storages(graph: &Graph, storages: &mut Vec<Storage>) -> (Vec<Place>, Vec<Option<usize>>) {
    let last = last_reads(graph);
    let mut places: Vec<Place> = graph.value_ids().map(Place::Leaf).collect();
    let mut storage_of: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (param, gradient) in &graph.gradients {
        places[gradient.0 as usize] = Place::Gradient(*param);
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        for (output, id) in node.outputs.iter().enumerate() {
            let slot = id.0 as usize;
            if matches!(places[slot], Place::Gradient(_)) {
                continue;
            }
            if matches!(node.op, Op::Reshape(_)) {
                let from = node.inputs[0].0 as usize;
                places[slot] = places[from].clone();
                storage_of[slot] = storage_of[from];
            } else {
                let taken = if output == 0 { takes_over(graph, node, i, &last, &storage_of, storages) } else { None };
                let storage = taken.unwrap_or_else(|| {
                    let bytes = align(graph.meta(*id).bytes());
                    storages.push(Storage { bytes, born: i, dies: i, offset: 0, value: Some(*id) });
                    storages.len() - 1
                });
                storage_of[slot] = Some(storage);
            }
            if let Some(storage) = storage_of[slot] {
                storages[storage].dies = storages[storage].dies.max(last[slot]);
            }
        }
    }
    (places, storage_of)
}

/// The storage of an input that output 0 may take over: same bytes, read by nobody after this node, and by this node only once.
fn takes_over(
    graph: &Graph,
    node: &Node,
    index: usize,
    last: &[usize],
    storage_of: &[Option<usize>],
    storages: &[Storage],
) -> Option<usize> {
    let bytes = align(graph.meta(node.outputs[0]).bytes());
    node.op.rule().in_place().iter().find_map(|i| {
        let id = *node.inputs.get(*i)?;
        let storage = storage_of[id.0 as usize]?;
        let once = node.inputs.iter().filter(|v| storage_of[v.0 as usize] == Some(storage)).count() == 1;
        let fits = storages[storage].bytes == bytes && graph.meta(id).bytes() == graph.meta(node.outputs[0]).bytes();
        (once && fits && last[id.0 as usize] == index && storages[storage].dies <= index).then_some(storage)
    })
}

fn add_scratch(graph: &Graph, index: usize, node: &Node, scratch: Scratch, storages: &mut Vec<Storage>) -> usize {
    let bytes = align(scratch(&node.op, &graph.metas(&node.inputs), &graph.metas(&node.outputs)));
    storages.push(Storage { bytes, born: index, dies: index, offset: 0, value: None });
    storages.len() - 1
}

fn most_alive(graph: &Graph, storages: &[Storage]) -> (u64, Option<NodeId>) {
    let mut best = (0, None);
    for (i, alive) in alive(graph, storages).into_iter().enumerate() {
        if alive > best.0 {
            best = (alive, Some(NodeId(i as u32)));
        }
    }
    best
}

fn alive(graph: &Graph, storages: &[Storage]) -> Vec<u64> {
    let mut change = vec![0i64; graph.nodes.len() + 2];
    for s in storages {
        change[s.born] += s.bytes as i64;
        change[s.dies + 1] -= s.bytes as i64;
    }
    let mut alive = 0;
    let count = |delta: &i64| {
        alive += delta;
        alive as u64
    };
    change[..graph.nodes.len()].iter().map(count).collect()
}

/// Sets every offset; returns the size of the arena.
fn place(storages: &mut [Storage]) -> u64 {
    let by_size = placed_in_order(storages, |s| (std::cmp::Reverse(s.bytes), s.born));
    let by_birth = placed_in_order(storages, |s| (std::cmp::Reverse(u64::MAX - s.born as u64), usize::MAX - s.bytes as usize));
    let (arena, offsets) = if by_birth.0 < by_size.0 { by_birth } else { by_size };
    storages.iter_mut().zip(offsets).for_each(|(s, offset)| s.offset = offset);
    arena
}

fn placed_in_order<K: Ord>(storages: &[Storage], key: impl Fn(&Storage) -> K) -> (u64, Vec<u64>) {
    let mut order: Vec<usize> = (0..storages.len()).filter(|i| storages[*i].bytes > 0).collect();
    order.sort_by_key(|i| key(&storages[*i]));
    let mut offsets = vec![0; storages.len()];
    let mut placed: Vec<usize> = Vec::new(); // by offset
    let mut arena = 0;
    for i in order {
        let s = &storages[i];
        let mut offset = 0;
        for j in &placed {
            let other = &storages[*j];
            if other.born > s.dies || s.born > other.dies {
                continue;
            }
            if offsets[*j] >= offset + s.bytes {
                break;
            }
            offset = offset.max(offsets[*j] + other.bytes);
        }
        offsets[i] = offset;
        arena = arena.max(offset + s.bytes);
        let position = placed.partition_point(|j| offsets[*j] < offset);
        placed.insert(position, i);
    }
    (arena, offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    /// Random lives and sizes: whatever they are, storages that live together never overlap.
    #[test]
    fn storages_that_live_together_never_overlap() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed, "plan", &[]);
            let mut storages: Vec<Storage> = (0..rng.below(60) + 1)
                .map(|_| {
                    let born = rng.below(40) as usize;
                    let dies = born + rng.below(15) as usize;
                    Storage { bytes: align(rng.below(1000)), born, dies, offset: 0, value: None }
                })
                .collect();
            let arena_bytes = place(&mut storages);
            let plan = Plan { places: vec![], scratch: vec![], arena_bytes, floor_bytes: 0, peak_node: None, storages };
            plan.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }

    #[test]
    fn verify_sees_an_overlap() {
        let storage = |offset| Storage { bytes: 128, born: 0, dies: 2, offset, value: None };
        let plan = |second| Plan {
            places: vec![],
            scratch: vec![],
            arena_bytes: 256,
            floor_bytes: 0,
            peak_node: None,
            storages: vec![storage(0), storage(second)],
        };
        assert!(plan(128).verify().is_ok());
        assert!(plan(64).verify().unwrap_err().contains("overlap"));
        assert!(plan(192).verify().unwrap_err().contains("outside"));
    }
}
