//! Log pages (Base Specification, *Get Log Page command*; Zoned Namespace Command Set Specification, *Changed Zone
//! List*; Base Specification, *Discovery Log Page*).

use super::structure::structure;

/// Log page identifiers: bits 7:0 of command dword 10.
pub mod lid {
    /// The supported log pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Errors.
    pub const ERROR: u8 = 0x01;
    /// Health.
    pub const HEALTH: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE: u8 = 0x03;
    /// Namespaces that were added, removed or changed.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// The supported commands and their effects.
    pub const EFFECTS: u8 = 0x05;
    /// Endurance groups.
    pub const ENDURANCE_GROUP: u8 = 0x09;
    /// Asymmetric namespace access.
    pub const ANA: u8 = 0x0c;
    /// The supported features and their effects.
    pub const FEATURES: u8 = 0x12;
    /// Media that turn.
    pub const ROTATIONAL_MEDIA: u8 = 0x16;
    /// The entries of a discovery controller.
    pub const DISCOVERY: u8 = 0x70;
    /// Zones whose state the controller changed.
    pub const CHANGED_ZONES: u8 = 0xbf;
}

/// Retain Asynchronous Event: command dword 10.
pub const RETAIN_EVENT: u32 = 1 << 15;

/// A command or a feature is supported: bit of [`EffectsLog`] and [`FeatureLog`].
pub const SUPPORTED: u32 = 1;
/// The command may change data or the state of zones.
pub const CHANGES_CONTENT: u32 = 1 << 1;

structure! {
    /// Supported Log Pages (00h).
    SupportedLogs: 1024 {
        /// For each page, bit 0: whether it is supported.
        pages: [u32; 256] = 0,
    }
}

structure! {
    /// An entry of Error Information (01h).
    ErrorEntry: 64 {
        /// Serial number of the error in the controller's lifetime; 0: no entry.
        error_count: u64 = 0,
        /// The submission queue.
        sqid: u16 = 8,
        /// The command.
        cid: u16 = 10,
        /// The status field of the completion.
        status: u16 = 12,
        /// The first block.
        lba: u64 = 16,
        /// The namespace.
        nsid: u32 = 24,
    }
}

structure! {
    /// SMART / Health Information (02h).
    HealthLog: 512 {
        /// Bits of warnings.
        critical_warning: u8 = 0,
        /// Kelvin.
        temperature: u16 = 1,
        /// Percent.
        available_spare: u8 = 3,
        /// Percent.
        spare_threshold: u8 = 4,
        /// Percent.
        percentage_used: u8 = 5,
        /// In 1000 units of 512 bytes.
        data_units_read: u128 = 32,
        /// In 1000 units of 512 bytes.
        data_units_written: u128 = 48,
        /// Commands.
        host_reads: u128 = 64,
        /// Commands.
        host_writes: u128 = 80,
        /// Hours.
        power_on_hours: u128 = 128,
        /// Errors of the medium.
        media_errors: u128 = 160,
        /// Entries of the error log in the controller's lifetime.
        error_entries: u128 = 176,
    }
}

structure! {
    /// Firmware Slot Information (03h).
    FirmwareLog: 512 {
        /// Bits 2:0: the active slot.
        afi: u8 = 0,
        /// Revisions.
        frs: [[u8; 8]; 7] = 8,
    }
}

structure! {
    /// Commands Supported and Effects (05h), of one command set.
    EffectsLog: 4096 {
        /// For each admin command: [`SUPPORTED`] and other bits.
        acs: [u32; 256] = 0,
        /// For each I/O command: [`SUPPORTED`] and other bits.
        iocs: [u32; 256] = 1024,
    }
}

structure! {
    /// Endurance Group Information (09h), of one group.
    EnduranceGroupLog: 512 {
        /// Bits of warnings.
        egcw: u8 = 0,
        /// Features. Bit 0: the medium turns.
        egfeat: u8 = 1,
        /// Percent.
        available_spare: u8 = 3,
        /// Percent.
        spare_threshold: u8 = 4,
        /// Percent.
        percentage_used: u8 = 5,
    }
}

structure! {
    /// Rotational Media Information (16h), of one endurance group.
    RotationalMediaLog: 512 {
        /// The endurance group.
        endgid: u16 = 0,
        /// Number of actuators.
        actuators: u16 = 2,
        /// Nominal rotational speed; 0: not told.
        speed: u16 = 4,
    }
}

structure! {
    /// Feature Identifiers Supported and Effects (12h).
    FeatureLog: 1024 {
        /// For each feature: [`SUPPORTED`] and other bits.
        fis: [u32; 256] = 0,
    }
}

structure! {
    /// The header of the log Asymmetric Namespace Access (0Ch).
    AnaHeader: 16 {
        /// Counts changes.
        change_count: u64 = 0,
        /// Groups that follow.
        groups: u16 = 8,
    }
}

structure! {
    /// A group of the log Asymmetric Namespace Access. The numbers of its namespaces follow, each in 4 bytes.
    AnaGroup: 32 {
        /// The group.
        id: u32 = 0,
        /// The number of its namespaces.
        nsids: u32 = 4,
        /// Counts changes.
        change_count: u64 = 8,
        /// Bits 3:0: 1 optimised, 2 not optimised, 3 inaccessible, 4 lost, 15 changing.
        state: u8 = 16,
    }
}

/// Most zones of the log Changed Zone List.
pub const MAX_CHANGED_ZONES: usize = 511;

structure! {
    /// Changed Zone List (BFh) of a namespace.
    ChangedZones: 4096 {
        /// The number of zones; FFFFh: more than fit.
        nrzid: u16 = 0,
        /// The first block of each zone.
        zslba: [u64; MAX_CHANGED_ZONES] = 8,
    }
}

structure! {
    /// The header of the discovery log (70h).
    DiscoveryHeader: 1024 {
        /// Changes whenever the log does.
        genctr: u64 = 0,
        /// Entries.
        numrec: u64 = 8,
        /// Format of the entries: 0.
        recfmt: u16 = 16,
    }
}

/// TRTYPE: TCP.
pub const TRANSPORT_TCP: u8 = 3;
/// ADRFAM: IPv4.
pub const FAMILY_IPV4: u8 = 1;
/// ADRFAM: IPv6.
pub const FAMILY_IPV6: u8 = 2;
/// SUBTYPE: an NVM subsystem with I/O controllers.
pub const SUBSYSTEM_NVM: u8 = 2;
/// SUBTYPE: the discovery subsystem that answers.
pub const SUBSYSTEM_CURRENT_DISCOVERY: u8 = 3;
/// TREQ: a secure channel is not required.
pub const NO_SECURE_CHANNEL: u8 = 2;
/// TREQ: a host may do without flow control of submission queues.
pub const FLOW_CONTROL_MAY_BE_OFF: u8 = 1 << 2;

structure! {
    /// An entry of the discovery log.
    DiscoveryEntry: 1024 {
        /// Transport.
        trtype: u8 = 0,
        /// Address family.
        adrfam: u8 = 1,
        /// The kind of subsystem that the entry describes (SUBTYPE).
        subtype: u8 = 2,
        /// Requirements of the transport: [`NO_SECURE_CHANNEL`], [`FLOW_CONTROL_MAY_BE_OFF`].
        treq: u8 = 3,
        /// The port of the subsystem.
        portid: u16 = 4,
        /// The controller; FFFFh: each association gets a new one.
        cntlid: u16 = 6,
        /// Largest admin queue.
        asqsz: u16 = 8,
        /// Flags. Bit 0: the other ports of this discovery subsystem return the same entries; 1: the controller keeps
        /// the connection.
        eflags: u16 = 10,
        /// The TCP port in digits, spaces behind it.
        trsvcid: [u8; 32] = 32,
        /// The NQN, zeroes behind it.
        subnqn: [u8; 256] = 256,
        /// The IP address as text, spaces behind it.
        traddr: [u8; 256] = 512,
        /// Security: 0 none, 1 TLS 1.2, 2 TLS 1.3.
        sectype: u8 = 768,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::text;

    #[test]
    fn logs_have_their_fields_where_the_figures_have_them() {
        let mut e = EffectsLog::default();
        (e.acs[0x0c], e.iocs[0x7d]) = (1, 3);
        let b = e.encode();
        assert_eq!((b[4 * 0x0c], b[1024 + 4 * 0x7d]), (1, 3));
        let h = HealthLog { available_spare: 100, media_errors: 5, ..Default::default() };
        assert_eq!((h.encode()[3], h.encode()[160]), (100, 5));
        let z = ChangedZones { nrzid: 1, zslba: [9; 511] };
        assert_eq!((z.encode()[..2].to_vec(), z.encode()[8], z.encode()[4088]), (vec![1, 0], 9, 9));
        let f = FirmwareLog { afi: 1, frs: [text("0.1", b' '); 7] };
        assert_eq!((f.encode()[0], &f.encode()[8..12]), (1, &b"0.1 "[..]));
    }

    #[test]
    fn an_entry_of_the_discovery_log() {
        let e = DiscoveryEntry {
            trtype: TRANSPORT_TCP,
            adrfam: FAMILY_IPV4,
            subtype: SUBSYSTEM_NVM,
            cntlid: 0xffff,
            asqsz: 32,
            trsvcid: text("4420", b' '),
            subnqn: text("nqn.x", 0),
            traddr: text("10.0.2.2", b' '),
            ..Default::default()
        };
        let b = e.encode();
        assert_eq!((&b[..3], &b[6..10]), (&[3, 1, 2][..], &[255, 255, 32, 0][..]));
        assert_eq!((&b[32..37], &b[256..262]), (&b"4420 "[..], &b"nqn.x\0"[..]));
        assert_eq!(&b[512..521], b"10.0.2.2 ");
        assert_eq!(DiscoveryEntry::decode(&b), e);
    }
}
