//! Test harness of the black-box suites.
