//! Figures in virtual time as plain data.
//!
//! | file | owns |
//! | --- | --- |
//! | `calls.rs` | what Python calls |
//! | `call.rs` | a computation without the interpreter lock, and the signals that come meanwhile |
//! | `policy.rs` | a policy of the single writer that is a Python object |

mod call;
pub(crate) mod calls;
pub(crate) mod policy;
