//! The order in which a request tries zones: the preferred node first, then the others by distance; within a node
//! from the highest kind that the request can use downwards, so that scarce kinds are used last.

use super::zone::{KINDS, Zone};
use crate::machine::{Machine, ZoneKind};
use crate::units::*;
use core::cmp::Reverse;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

/// Zonelists for each preferred node and highest kind, built once.
pub(super) struct Zonelists {
    lists: Box<[Box<[ZoneId]>]>,
    /// The first of each list, if it is on the preferred node.
    near: Box<[Option<ZoneId>]>,
}

const ALL_KINDS: [ZoneKind; KINDS] = [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable];

impl Zonelists {
    /// The lists for `nodes` nodes.
    pub fn new<M: Machine>(machine: &M, zones: &[Zone], nodes: usize) -> Zonelists {
        let list = |from: NodeId, highest: ZoneKind| {
            let mut list: Vec<&Zone> = zones.iter().filter(|zone| zone.kind() <= highest).collect();
            list.sort_by_key(|zone| {
                let node = zone.node();
                let distance = if node == from { 0 } else { machine.distance(from, node) };
                // Of equally distant nodes take the next higher number first, so that not all of them turn to the
                // same node.
                (node != from, distance, node < from, node, Reverse(zone.kind()), zone.start())
            });
            list.iter().map(|zone| zone.id()).collect::<Box<[ZoneId]>>()
        };
        let keys = (0..nodes).flat_map(|node| ALL_KINDS.map(|kind| (NodeId(node as u8), kind)));
        let lists: Box<[_]> = keys.clone().map(|(node, kind)| list(node, kind)).collect();
        let is_near = |node, id: &&ZoneId| zones[id.index()].node() == node;
        let near =
            keys.zip(&lists).map(|((node, _), list)| list.first().filter(|id| is_near(node, id)).copied());
        Zonelists { near: near.collect(), lists }
    }

    /// Zones for a request that prefers `node` and can use kinds up to `highest`.
    ///
    /// # Panics
    /// If the machine has no such node.
    #[inline]
    pub fn get(&self, node: NodeId, highest: ZoneKind) -> &[ZoneId] {
        &self.lists[node.index() * KINDS + highest as usize]
    }
    /// The first zone for such a request, if that is on the preferred node.
    ///
    /// # Panics
    /// If the machine has no such node.
    #[inline]
    pub fn near(&self, node: NodeId, highest: ZoneKind) -> Option<ZoneId> {
        self.near[node.index() * KINDS + highest as usize]
    }
}
