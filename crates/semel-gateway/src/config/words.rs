//! Choices that are written as one word, in one list each: reading, showing and the message for a wrong word follow from it.

/// Declares an enum whose variants are words of the file.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $word:literal, )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name { $( $(#[$vmeta])* $variant, )* }

        impl $name {
            /// The word in the file.
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )* }
            }

            pub(super) fn from_word(word: &str) -> Result<Self, $crate::config::read::Fault> {
                match word {
                    $( $word => Ok(Self::$variant), )*
                    other => Err($crate::config::read::Fault::unknown_word(other, &[$( $word, )*])),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::config::read::Read for $name {
            fn read(node: &$crate::config::read::Node<'_>) -> Result<Self, $crate::config::read::Fault> {
                Self::from_word($crate::config::read::text(node, "a word", "put it between quotes")?)
            }
        }
    };
}

pub(super) use words;
