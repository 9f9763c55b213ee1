//! Measures how long operations of an adapter take, with the feature `latency`. Without it, a [`Recorder`] and a
//! [`Begun`] have no bytes and their methods no code.

#[cfg(not(feature = "latency"))]
pub(crate) use absent::{Begun, Recorder};
#[cfg(feature = "latency")]
pub use present::Latencies;
#[cfg(feature = "latency")]
pub(crate) use present::{Begun, Recorder};

#[cfg(feature = "latency")]
mod present {
    use hdrhistogram::Histogram;
    use std::collections::BTreeMap;
    use std::time::Instant;
    use zoneplug_core::Op;

    /// How long operations took, by kind, in nanoseconds and exact to three digits. The time runs from the call that
    /// submits an operation until the adapter takes its completion. Excludes operations that failed or were given up.
    ///
    /// ```
    /// use zoneplug_host::{BlockingDisk, HostedDisk};
    /// use zoneplug_core::{Op, Sector};
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// io.append_from(Sector(0), &[0; 4096]).unwrap();
    /// io.record_latency(true);
    /// for _ in 0..10 {
    ///     io.append_from(Sector(0), &[0; 4096]).unwrap();
    /// }
    /// let appends = io.latencies().of(Op::ZoneAppend).unwrap();
    /// assert_eq!(appends.len(), 10);
    /// assert!(appends.value_at_quantile(0.5) > 0);
    /// ```
    #[derive(Debug, Clone, Default)]
    pub struct Latencies(BTreeMap<&'static str, Histogram<u64>>);

    impl Latencies {
        /// The histogram of one kind of operation, in nanoseconds. `None` if no operation of that kind was recorded.
        pub fn of(&self, op: Op) -> Option<&Histogram<u64>> {
            self.0.get(op.name())
        }

        /// All histograms, by the name of the operation.
        pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
            self.0.iter().map(|(name, h)| (*name, h))
        }

        /// Adds the records of another adapter.
        pub fn add(&mut self, other: &Latencies) {
            for (name, h) in &other.0 {
                // Histograms grow for any value, so this cannot fail.
                let _ = self.0.entry(name).or_insert_with(histogram).add(h);
            }
        }
    }

    fn histogram() -> Histogram<u64> {
        Histogram::new(3).unwrap_or_else(|e| unreachable!("three digits are possible: {e}"))
    }

    /// When an operation was submitted, if it is recorded.
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Begun(Option<Instant>);

    #[derive(Debug, Default)]
    pub(crate) struct Recorder {
        on: bool,
        pub(crate) latencies: Latencies,
    }

    impl Recorder {
        pub(crate) fn switch(&mut self, on: bool) {
            self.on = on;
        }

        pub(crate) fn begin(&self) -> Begun {
            Begun(self.on.then(Instant::now))
        }

        pub(crate) fn end(&mut self, op: Op, begun: Begun) {
            if let Some(begun) = begun.0 {
                let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let h = self.latencies.0.entry(op.name()).or_insert_with(histogram);
                // The histogram grows for any value, so this cannot fail.
                let _ = h.record(nanos);
            }
        }
    }
}

#[cfg(not(feature = "latency"))]
mod absent {
    use zoneplug_core::Op;

    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Begun;

    #[derive(Debug, Default)]
    pub(crate) struct Recorder(());

    impl Recorder {
        #[inline(always)]
        pub(crate) fn begin(&self) -> Begun {
            Begun
        }

        #[inline(always)]
        pub(crate) fn end(&mut self, _: Op, _: Begun) {}
    }

    const _: () = assert!(size_of::<Begun>() == 0 && size_of::<Recorder>() == 0);
}
