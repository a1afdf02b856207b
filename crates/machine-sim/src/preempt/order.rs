//! In which order kinds of locks are taken.
//!
//! Two CPUs that take two locks in opposite orders can wait for each other for ever, but seldom do. That they could
//! shows as soon as each order was seen once, at whatever time: kinds of locks are points, "taken while that was held"
//! an arrow, and no circle may come. A lock that is only tried for waits for nobody, so nothing leads to it; but what
//! is taken while it is held counts. Locks of one kind (the tables of two spaces) are not told apart, so their order is
//! not checked.

use std::collections::BTreeMap;

/// For each kind, which were waited for while it was held.
#[derive(Default)]
pub(super) struct Order(BTreeMap<&'static str, Vec<&'static str>>);

impl Order {
    /// A lock of the kind `wanted` is waited for while those of `held` are held. An error names a circle.
    pub fn note(&mut self, held: &[&'static str], wanted: &'static str) -> Result<(), String> {
        for &before in held.iter().filter(|&&before| before != wanted) {
            if self.after(before).contains(&wanted) {
                continue;
            }
            if let Some(path) = self.path(wanted, before) {
                return Err(format!("locks are taken in a circle: {} -> {wanted}", path.join(" -> ")));
            }
            self.0.entry(before).or_default().push(wanted);
        }
        Ok(())
    }

    fn after(&self, kind: &'static str) -> &[&'static str] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Kinds that lead from one to the other, both among them. There is no circle yet.
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
    fn a_circle_is_named() {
        let mut order = Order::default();
        order.note(&["tree", "spans"], "tables").unwrap();
        order.note(&["tree"], "spans").unwrap();
        let said = order.note(&["tables"], "tree").unwrap_err();
        assert_eq!(said, "locks are taken in a circle: tree -> tables -> tree");
        let said = order.note(&["tables"], "spans").unwrap_err();
        assert_eq!(said, "locks are taken in a circle: spans -> tables -> spans");
    }

    #[test]
    fn locks_of_one_kind_are_not_told_apart() {
        let mut order = Order::default();
        order.note(&["tables"], "tables").unwrap();
        order.note(&["tables", "swap"], "tables").unwrap();
        assert!(order.note(&["tables"], "swap").is_err());
    }
}
