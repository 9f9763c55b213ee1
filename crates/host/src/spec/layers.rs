//! Layers that need nothing but the device below them.

use super::{SpecPart, keys, take_fault};
use std::sync::Arc;
use zoneplug_core::{Device, Error};
use zoneplug_devices::spec::Spec;
use zoneplug_devices::stack::{FaultAction, FaultDisk, FaultPlan, Po2Disk};

/// A layer that needs nothing but the device below it.
#[derive(Debug, Clone)]
pub(super) enum SimpleLayer {
    Po2,
    Delay(FaultPlan),
}

impl SimpleLayer {
    pub(super) fn put_on(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        Ok(match self {
            SimpleLayer::Po2 => Po2Disk::new(device)?,
            SimpleLayer::Delay(plan) if plan.rules.is_empty() => {
                return Err(Error::invalid("delay of nothing")
                    .hint("delay,write=2ms@...: read, write, append, flush, reset or any"));
            }
            SimpleLayer::Delay(plan) => FaultDisk::new(device, plan)?,
        })
    }
}

/// Takes a layer from its specification. `None`: the layer is another one.
pub(super) fn take_layer(spec: &mut Spec) -> Result<Option<SimpleLayer>, Error> {
    Ok(match spec.kind() {
        "po2" => Some(SimpleLayer::Po2),
        "delay" => {
            let mut plan = FaultPlan::default();
            for key in &keys::DELAYS {
                if let Some(time) = spec.number(key)? {
                    let rule: FaultPlan =
                        format!("{}/delay={time}ns/count=all", key.name).parse()?;
                    plan.rules.extend(rule.rules);
                }
            }
            Some(SimpleLayer::Delay(plan))
        }
        _ => None,
    })
}

/// Layers of a specification that a program puts on a device of its own, such as a run in virtual time: `po2` and
/// `delay`, and faults that only delay. They change neither the order of zones nor the places in them.
///
/// ```
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// use zoneplug_host::{Specification, TimedLayers};
/// let mut layers = TimedLayers::default();
/// layers.push(Specification::parse("po2@null")?.root().part())?;
/// layers.push(Specification::parse("delay,read=1ms@null")?.root().part())?;
/// let disk = EmuDisk::new("null,zones=4,zone-size=96M".parse::<EmuConfig>()?)?;
/// assert_eq!(layers.put_on(disk)?.geometry().zone_sectors(), 128 << 11);
/// let refused = Specification::parse("po2,fault=write/io@crypt@null")?;
/// assert!(layers.push(refused.root().part()).is_err());
/// assert!(layers.push(refused.root().below()[0].part()).is_err());
/// # Ok::<(), zoneplug_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TimedLayers {
    /// The lowest first.
    all: Vec<SimpleLayer>,
}

impl TimedLayers {
    /// Takes `fault=` of a device.
    ///
    /// # Errors
    ///
    /// A fault that does more than delay.
    pub fn take_fault(&mut self, spec: &mut Spec) -> Result<(), Error> {
        let Some(plan) = take_fault(spec)? else { return Ok(()) };
        if plan.rules.iter().any(|r| !matches!(r.action, FaultAction::Delay(_))) {
            return Err(Error::invalid("fault= in virtual time with more than a delay")
                .hint("read/delay=5ms/p=0.01, or zoneplug-lab bench --real-time"));
        }
        self.all.push(SimpleLayer::Delay(plan));
        Ok(())
    }

    /// Whether there are no layers.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Puts one more layer on top.
    ///
    /// # Errors
    ///
    /// A layer that is not one of these.
    pub fn push(&mut self, layer: &SpecPart) -> Result<(), Error> {
        let mut spec = layer.options();
        let Some(layer) = take_layer(&mut spec)? else {
            return Err(Error::invalid(format!("the layer {} in virtual time", spec.kind()))
                .hint("po2, delay, or a stripe of equal drives"));
        };
        self.all.push(layer);
        self.take_fault(&mut spec)?;
        spec.finish()
    }

    /// The device with all layers on it.
    ///
    /// # Errors
    ///
    /// A layer that is impossible on this device, or has no effect.
    pub fn put_on(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        self.all.iter().try_fold(device, |device, layer| layer.put_on(device))
    }
}
