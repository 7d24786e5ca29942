//! Enums whose variants have a text form, and enums that have variants of another one.

/// Defines an enum whose variants have a text form, with `ALL`, `as_str` and `parse`.
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All variants, in order.
            $vis const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The text form.
            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The variant with this text form.
            #[must_use]
            $vis fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

/// Implements `From` for an enum that has all variants of another one, which are listed.
#[macro_export]
macro_rules! same_variants {
    ($from:ident => $to:ty { $($variant:ident),* }) => {
        impl From<$from> for $to {
            fn from(given: $from) -> Self {
                match given { $($from::$variant => Self::$variant,)* }
            }
        }
    };
}
