//! A `Fresh` is used once.
use mm::Machine;
use mm::alloc::{Allocator, Mark, Request};
use mm::ground::Ground;

pub fn twice<M: Machine>(ground: &Ground<M>, alloc: &Allocator, request: &Request) {
    let fresh = alloc.take(ground, request, Mark::Low).unwrap();
    let _first = fresh.into_pfn();
    let _second = fresh.into_pfn();
}

fn main() {}
