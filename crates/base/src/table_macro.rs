//! One macro for the tables of counters, events and kinds of work: an enum, the names, and the help texts from one
//! place.

/// Declare an enum whose variants carry a name and a help text.
#[macro_export]
macro_rules! named_table {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum $name {
            $(#[doc = $help] $variant,)*
        }

        impl $name {
            /// All of them, in table order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in tables, files and options.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// One line of help.
            pub const fn help(self) -> &'static str {
                match self { $($name::$variant => $help,)* }
            }

            /// Look a name up.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|item| item.name() == name)
            }
        }
    };
}
