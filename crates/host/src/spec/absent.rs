//! Replaces the parts that this build leaves out. A specification that names one of them fails with an error that names
//! the feature. Each module here has the name and the functions of the part that it replaces.

use zoneplug_core::{Error, ErrorKind};

/// The error for `what`, which is part of `feature`.
fn not_built(what: &str, feature: &str) -> Error {
    Error::new(ErrorKind::NotSupported, format!("{what}: not in this build")).hint(format!(
        "the feature {feature}: zoneplug = {{ .., features = [\"{feature}\"] }} in Cargo.toml"
    ))
}

#[cfg(not(feature = "file"))]
pub(crate) mod cuts {
    use super::super::meaning::Base;
    use super::super::{Opened, Purpose};
    use crate::backend::data_path::DataPath;
    use std::ops::Range;
    use std::sync::Arc;
    use zoneplug_core::{Device, Error};
    use zoneplug_devices::spec::Spec;

    #[derive(Default)]
    pub(crate) struct Cuts(());

    pub(in crate::spec) fn open(
        spec: &mut Spec,
        _: Purpose,
        _: &mut Opened,
    ) -> Result<(Arc<dyn Device>, Base, DataPath), Error> {
        Err(super::not_built(&format!("{}, a disk in a file", spec.kind()), "file"))
    }

    impl Cuts {
        pub(crate) fn cut(&mut self, _: &Arc<dyn Device>, _: Range<u32>) {}

        pub(crate) fn check(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }
}

#[cfg(not(feature = "drives"))]
pub(crate) mod drives {
    use super::super::{Opened, Purpose};
    use crate::backend::data_path::DataPath;
    use std::path::Path;
    use std::sync::Arc;
    use zoneplug_core::{Device, Error};
    use zoneplug_devices::spec::Spec;

    pub(crate) fn is_protected(_: &Path) -> bool {
        false
    }

    pub(in crate::spec) fn open(
        spec: &mut Spec,
        _: Purpose,
        _: &mut Opened,
    ) -> Result<(Arc<dyn Device>, DataPath), Error> {
        Err(super::not_built(&format!("{}, a drive", spec.kind()), "drives"))
    }
}

#[cfg(not(feature = "crypt"))]
pub(crate) mod crypt {
    use std::path::Path;
    use std::sync::Arc;
    use zoneplug_core::{Device, Error};

    pub(crate) struct CryptDisk;

    impl CryptDisk {
        pub(crate) fn open(
            _: Arc<dyn Device>,
            _: &Path,
            _: &str,
            _: Option<crate::held::HeldKey>,
        ) -> Result<(Arc<dyn Device>, String, crate::held::HeldKey), Error> {
            Err(super::not_built("crypt, the layer that encrypts", "crypt"))
        }

        #[cfg_attr(
            not(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk")),
            expect(dead_code, reason = "servers compare what they serve")
        )]
        pub(crate) fn key_check(_: &Path, _: &str) -> Option<String> {
            None
        }
    }
}
