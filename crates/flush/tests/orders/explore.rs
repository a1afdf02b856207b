//! All orders of the steps of all CPUs, by running again from the start.

use super::kernel::CPUS;
use super::world::{Kind, Op, World};
use std::collections::HashSet;

/// What was found.
pub struct Found {
    /// States that differ.
    pub states: usize,
    /// Steps from one to another.
    pub steps: u64,
    /// The first fault, with the steps that lead to it.
    pub fault: Option<String>,
}

/// A CPU goes on: with an operation, or with the next step of the one that it is in.
#[derive(Clone, Copy, Debug)]
enum Move {
    Begin(usize, Op),
    GoOn(usize),
}

struct Search<'a> {
    kind: Kind,
    operations: &'a [Vec<Op>; CPUS],
    each: u32,
    met: HashSet<u64>,
    steps: u64,
    path: Vec<Move>,
}

/// All orders in which each CPU makes as many operations of its list.
pub fn explore(kind: Kind, operations: &[Vec<Op>; CPUS], each: u32) -> Found {
    let (met, path) = (HashSet::new(), Vec::new());
    let mut search = Search { kind, operations, each, met, steps: 0, path };
    let start = search.world();
    let fault = search.go_on(start).err();
    Found { states: search.met.len(), steps: search.steps, fault }
}

impl Search<'_> {
    /// The world after the steps of the path.
    fn world(&self) -> World {
        let mut world = World::new(self.kind, self.each);
        self.path.iter().for_each(|&next| make(&mut world, next));
        world
    }

    /// Continue from a world that the path leads to.
    fn go_on(&mut self, world: World) -> Result<(), String> {
        let mut moves = Vec::new();
        for cpu in 0..CPUS {
            if world.is_between(cpu) {
                moves.extend(self.operations[cpu].iter().map(|&op| Move::Begin(cpu, op)));
            } else if world.can_step(cpu) {
                moves.push(Move::GoOn(cpu));
            }
        }
        if moves.is_empty() {
            let result = world.is_complete();
            world.end();
            return result.map_err(|fault| self.told(fault));
        }
        let mut here = Some(world);
        for next in moves {
            let mut world = here.take().unwrap_or_else(|| self.world());
            self.path.push(next);
            make(&mut world, next);
            self.steps += 1;
            let right = world.is_right();
            if right.is_err() || !self.met.insert(world.state()) {
                world.end();
                right.map_err(|fault| self.told(fault))?;
            } else {
                self.go_on(world)?;
            }
            self.path.pop();
        }
        Ok(())
    }

    fn told(&self, fault: String) -> String {
        format!("{fault}, after {:?}", self.path)
    }
}

fn make(world: &mut World, next: Move) {
    match next {
        Move::Begin(cpu, op) => world.begin(cpu, op),
        Move::GoOn(cpu) => world.step(cpu),
    }
}
