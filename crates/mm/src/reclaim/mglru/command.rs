//! Commands of a user: to age a vector, or to evict its oldest generations.
//!
//! The commands, their text and their errors are those of Linux's debugfs file `lru_gen`. A text may have several,
//! separated by commas, semicolons or new lines:
//!
//! ```text
//! + group node seq [swappiness [force]]       make the generation after seq, which must be the youngest
//! - group node seq [swappiness [pages]]       evict all generations up to seq, or that many pages
//! ```

use crate::lru::MAX_SWAPPINESS;
use crate::lru::mglru::{MAX_GENERATIONS, MIN_GENERATIONS};
use crate::machine::{Machine, ZoneKind};
use crate::mm_core::MmCore;
use crate::reclaim::{AddressSpaces, Reclaim, ReclaimState, ScanControl};
use crate::units::*;

/// Why a command was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// No command, no such group or node, or no such generation (EINVAL).
    Invalid,
    /// The vector has the maximum of generations, and the command does not force a new one (ERANGE).
    Range,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Command {
    ages: bool,
    group: GroupId,
    node: NodeId,
    seq: u64,
    swappiness: Option<u64>,
    /// To age: not 0 forces; to evict: the most pages.
    option: u64,
}

impl Command {
    fn parse(text: &str) -> Option<Command> {
        let ages = match text.chars().next()? {
            '+' => true,
            '-' => false,
            _ => return None,
        };
        let mut words = text[1..].split_ascii_whitespace();
        let group = GroupId(words.next()?.parse().ok()?);
        let node = NodeId(words.next()?.parse().ok()?);
        let seq = words.next()?.parse().ok()?;
        let swappiness =
            words.next().map(|word| word.parse().ok()).map_or(Some(None), |word| word.map(Some))?;
        let option = words.next().map_or(Some(u64::MAX), |word| word.parse().ok())?;
        let command = Command { ages, group, node, seq, swappiness, option };
        words.next().is_none().then_some(command)
    }
}

/// Execute commands up to the first that fails.
pub fn command<M: Machine>(
    core: &MmCore<M>,
    state: &ReclaimState,
    spaces: &dyn AddressSpaces,
    text: &str,
) -> Result<(), CommandError> {
    let cx = Reclaim { core, state, spaces };
    let commands = text.split([',', ';', '\n']).map(str::trim).filter(|command| !command.is_empty());
    for text in commands {
        let command = Command::parse(text).ok_or(CommandError::Invalid)?;
        cx.carry_out(command)?;
    }
    Ok(())
}

impl<M: Machine> Reclaim<'_, M> {
    fn carry_out(self, command: Command) -> Result<(), CommandError> {
        let Command { group, node, seq, option, .. } = command;
        let lru = &self.core.lru;
        let known = lru.groups.is_live(group) && node.index() < lru.nodes();
        if !known || command.swappiness.is_some_and(|swappiness| swappiness > MAX_SWAPPINESS) {
            return Err(CommandError::Invalid);
        }
        let mut sc = ScanControl::new(option, Order::ZERO, ZoneKind::Movable);
        (sc.swappiness, sc.mm_walk) = (command.swappiness, true);
        let swappiness = command.swappiness.unwrap_or_else(|| self.swappiness(node, group, &sc));
        if command.ages {
            self.run_aging(node, group, seq, swappiness > 0, option != 0)
        } else {
            self.run_eviction(node, group, seq, swappiness, &mut sc)
        }
    }

    fn run_aging(
        self,
        node: NodeId,
        group: GroupId,
        seq: u64,
        can_swap: bool,
        force: bool,
    ) -> Result<(), CommandError> {
        let generations = &self.core.lru.vec(node, group).generations;
        let max = generations.max_seq();
        if seq > max {
            return Err(CommandError::Invalid);
        }
        if seq == max {
            if !force && generations.oldest_seq(can_swap) + MAX_GENERATIONS - 1 <= max {
                return Err(CommandError::Range);
            }
            self.age(node, group, seq, can_swap, force);
        }
        Ok(())
    }

    fn run_eviction(
        self,
        node: NodeId,
        group: GroupId,
        seq: u64,
        swappiness: u64,
        sc: &mut ScanControl,
    ) -> Result<(), CommandError> {
        let generations = &self.core.lru.vec(node, group).generations;
        if seq + MIN_GENERATIONS > generations.max_seq() {
            return Err(CommandError::Invalid);
        }
        while seq >= generations.oldest_seq(swappiness > 0)
            && sc.nr_reclaimed < sc.nr_to_reclaim
            && self.evict_some(node, group, swappiness, sc, None) > 0
        {
            self.core.machine.resched();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_parse_as_in_linux() {
        let command = Command {
            ages: true,
            group: GroupId(3),
            node: NodeId(1),
            seq: 42,
            swappiness: None,
            option: u64::MAX,
        };
        assert_eq!(Command::parse("+ 3 1 42"), Some(command));
        assert_eq!(Command::parse("+3 1 42"), Some(command));
        assert_eq!(Command::parse("+ 3 1 42 60"), Some(Command { swappiness: Some(60), ..command }));
        let evict = Command { ages: false, swappiness: Some(0), option: 100, ..command };
        assert_eq!(Command::parse("- 3 1 42 0 100"), Some(evict));
        for wrong in ["", "3 1 42", "+ 3 1", "+ 3 1 x", "- 3 1 42 0 100 7", "* 3 1 42", "+ 3 1 -1"] {
            assert_eq!(Command::parse(wrong), None, "{wrong}");
        }
    }
}
