//! Enums whose values have one spelling on the wire and in stores.

/// Defines an enum with one fixed spelling for each value on the wire and in stores.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value with its spelling, in the order in which error texts name them.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($text, Self::$variant),)*];
            /// The fixed spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::id::InvalidId;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
                    .ok_or($crate::id::InvalidId { kind: stringify!($name), expected: concat!("one of" $(, " `", $text, "`")*) })
            }
        }
        $crate::id::serde_as_text!($name, |value| value.as_str());
    };
}
pub(crate) use wire_enum;
