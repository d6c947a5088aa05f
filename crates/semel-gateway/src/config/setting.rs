//! A value and where it came from.

use std::fmt;
use std::ops::Deref;

/// A place in the file, for people: lines and columns count from one, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Position {
    /// Line, from one.
    pub line: u32,
    /// Column in characters, from one.
    pub column: u32,
    /// Characters to underline on that line; at least one.
    pub width: u32,
}

/// Who said it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Written in the file, in the rule itself or in `[defaults]`.
    File(Position),
    /// A flag of the command line or its environment variable.
    Flag(&'static str),
    /// Part of a preset.
    Preset(&'static str),
    /// Built in.
    Default,
    /// Follows from other settings; the text says from which.
    Derived(&'static str),
}

impl Origin {
    /// Whether a person asked for it, in the file or by a flag.
    pub fn is_explicit(self) -> bool {
        matches!(self, Self::File(_) | Self::Flag(_))
    }

    /// The place in the file, where there is one.
    pub fn position(self) -> Option<Position> {
        match self {
            Self::File(at) => Some(at),
            Self::Flag(_) | Self::Preset(_) | Self::Default | Self::Derived(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(at) => write!(f, "line {}", at.line),
            Self::Flag(name) => f.write_str(name),
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::Default => f.write_str("default"),
            Self::Derived(from) => f.write_str(from),
        }
    }
}

/// A value in force and where it came from. Reads like the value itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// Who said so.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A built-in value.
    pub fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// A value of a preset.
    pub(super) fn preset(name: &'static str, value: T) -> Self {
        Self { value, origin: Origin::Preset(name) }
    }

    /// A value that follows from others.
    pub(super) fn derived(from: &'static str, value: T) -> Self {
        Self { value, origin: Origin::Derived(from) }
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
