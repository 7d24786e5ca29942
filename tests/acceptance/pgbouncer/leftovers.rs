//! What a call leaves in a backend is there for whoever has it next: nothing may be left.
