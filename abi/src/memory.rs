//! Memory: protections, mapping flags, advice.
