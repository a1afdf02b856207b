//! Assertions that cost hot code one comparison.
//!
//! What `assert!` names in its message is borrowed, so it has to have an address: the compiler keeps it in memory
//! instead of a register, with all that it is a part of, wherever the assertion holds. A `demand!` copies it instead,
//! and only when it fails.

/// Panic unless a condition holds. What the message names is copied first: `demand!(a < b, [a, b = x.b]; "{a} {b}")`.
#[macro_export]
macro_rules! demand {
    ($holds:expr, [$($name:ident $(= $value:expr)?),+]; $message:literal) => {
        if !$holds {
            $($crate::demand!(@copy $name $(= $value)?);)+
            $crate::demand::fail(move || panic!($message));
        }
    };
    (@copy $name:ident) => { let $name = $name; };
    (@copy $name:ident = $value:expr) => { let $name = $value; };
}

/// Make the message, and panic with it.
#[cold]
#[inline(never)]
pub fn fail(panic: impl FnOnce() -> core::convert::Infallible) -> ! {
    match panic() {}
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "7 is more than 6")]
    fn a_demand_that_fails_names_its_values() {
        let (most, found) = (6, [7]);
        demand!(found[0] <= most, [found = found[0], most]; "{found} is more than {most}");
    }

    #[test]
    fn a_demand_that_holds_evaluates_nothing_else() {
        let dear = || -> u32 { panic!("nobody asked") };
        demand!(true, [value = dear()]; "{value}");
    }
}
