# A host-managed SMR hard disk of 30 TB (SATA, 7200 rpm), as far as published throughput shows it.
#
# A line is: key = value # source. "Calibrated" names the cell of the published tables that set the number, in the order
# in which they were set (docs/models.md, "Calibration"); the tables are those of the patch series "Improve zoned (SMR)
# HDD write throughput", linux-block, February 2026. It is a hypothesis that agrees with them, not a measurement. The six
# values are what the command prints: cargo run --release -p zoneplug-models --example calibrate

model = smr              # the drive is a host-managed SMR disk
zones = 111759           # 30 TB in zones of 256 MiB
zone-size = 256M         # the published tests of SMR disks; every such disk on sale
max-open = 128           # published: "128 max open zones" of the 20 TB disk; assumed the same
queue-depth = 31         # SATA has 32 tags, of which libata keeps one
max-transfer = 1M        # calibrated (6th): sequential, baseline, depth 32 = 211 MB/s (gives 222; 2, 3 and 4 MiB give 229, 222 and 232). Direct writes
                         # of 1 MiB in scattered pages: AHCI's 168 segments are less than two of them

rpm = 7200               # the disk's data sheet
outer-rate = 245MB/s     # calibrated (1st): sequential at depth 1 = 244 to 245 MB/s
inner-radius = 0.59      # calibrated (2nd): patched, 1 random zone = 192 MB/s, the mean rate over the disk; typical: 0.45-0.6
seek-settle = 1ms        # chosen with the next two, one degree of freedom: published shapes of seek curves
seek-sqrt = 10500us      # calibrated (3rd): baseline, 32 random zones = 58 MB/s. Mean seek 8.5 ms, full stroke 17.5 ms; the
                         # data sheet of a disk of the same family says 8.2 typical, 11 at most for writes
seek-linear = 6ms        # chosen with seek-sqrt

link-rate = 550MB/s      # SATA at 6 Gb/s after 8b/10b coding and framing
command-time = 20us      # a guess: no cell of the tables depends on it
cache = 18M              # calibrated (4th): patched, 64 random zones = 101 MB/s. Far below the buffer of the disk: what its
                         # firmware reorders, which nobody publishes
protected = 18M          # hypothesis: all of it. The series says that with the write cache off nothing is lost in speed; another
                         # disk saves up to 128 MiB over a power cut (WD Ultrastar DC HC580, specification, 6.5.2)
max-run = 3M             # calibrated (5th): patched, 2 random zones = 128 MB/s; matters for 2 and 4 zones only
queued-fifo = 8          # structure: of 72 that were tried the one nearest to all tables, also to columns held out (docs/models.md)
read-burst = 8           # not calibrated: no published cell reads and writes
write-burst = 4M         # not calibrated: no published cell reads and writes
