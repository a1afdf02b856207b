//! The order in which kinds of locks are taken.
//!
//! Two CPUs that take two locks in opposite orders can deadlock, but seldom do. The possibility shows as soon as each order
//! was seen once, at any time: in the graph of kinds of locks, with an edge for "taken while that was held", there must be
//! no cycle. A trylock waits for no other CPU, so no edge leads to it; but locks taken while it is held count. Locks of one
//! kind (the tables of two spaces) are not distinguished, so their order is not checked.

use std::collections::BTreeMap;

/// For each kind, the kinds that a task waited for while it held one.
#[derive(Default)]
pub(super) struct Order(BTreeMap<&'static str, Vec<&'static str>>);

impl Order {
    /// A task that holds locks of the kinds `held` waits for one of the kind `wanted`. The error names a cycle.
    pub fn note(&mut self, held: &[&'static str], wanted: &'static str) -> Result<(), String> {
        for &before in held.iter().filter(|&&before| before != wanted) {
            if self.after(before).contains(&wanted) {
                continue;
            }
            if let Some(path) = self.path(wanted, before) {
                return Err(format!("locks are taken in a cycle: {} -> {wanted}", path.join(" -> ")));
            }
            self.0.entry(before).or_default().push(wanted);
        }
        Ok(())
    }

    fn after(&self, kind: &'static str) -> &[&'static str] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The kinds on a path from one to the other, both included. The graph has no cycle.
    fn path(&self, from: &'static str, to: &'static str) -> Option<Vec<&'static str>> {
        if from == to {
            return Some(vec![to]);
        }
        self.after(from).iter().find_map(|&next| {
            let mut path = self.path(next, to)?;
            path.insert(0, from);
            Some(path)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_reported() {
        let mut order = Order::default();
        order.note(&["tree", "spans"], "tables").unwrap();
        order.note(&["tree"], "spans").unwrap();
        let said = order.note(&["tables"], "tree").unwrap_err();
        assert_eq!(said, "locks are taken in a cycle: tree -> tables -> tree");
        let said = order.note(&["tables"], "spans").unwrap_err();
        assert_eq!(said, "locks are taken in a cycle: spans -> tables -> spans");
    }

    #[test]
    fn locks_of_one_kind_are_not_distinguished() {
        let mut order = Order::default();
        order.note(&["tables"], "tables").unwrap();
        order.note(&["tables", "swap"], "tables").unwrap();
        assert!(order.note(&["tables"], "swap").is_err());
    }
}
