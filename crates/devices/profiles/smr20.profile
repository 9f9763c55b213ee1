# A host-managed SMR hard disk of 20 TB, of the tables of the series "Zone write plugging", linux-block, April 2024.
#
# Two numbers were set by two of its cells: a fit, not a prediction. It contradicts the 30 TB disk in how queued writes
# are ordered, which is why each drive has a profile of its own.

model = smr              # the drive is a host-managed SMR disk
zones = 74506            # 20 TB in zones of 256 MiB
zone-size = 256M         # published with the tables
max-open = 128           # published with the tables
queue-depth = 31         # SATA has 32 tags, of which libata keeps one
max-transfer = 4M        # not sensitive: its random writes are of 128 KiB and 4 KiB

rpm = 7200               # the family's data sheets
outer-rate = 246MB/s     # calibrated: sequential, 1 MiB, depth 1 = 245 MB/s
inner-radius = 0.55      # typical of such disks (0.45-0.6); no cell sets it
seek-settle = 1ms        # as smr30
seek-sqrt = 10500us      # as smr30, less 1 ms: mean 8.5 ms, nearer to the data sheet's 8.2
seek-linear = 6ms        # as smr30

link-rate = 550MB/s      # SATA at 6 Gb/s after 8b/10b coding and framing
command-time = 17us      # calibrated: sequential, 4 KiB, depth 1 = 107 MB/s, 38 us a command with the client's share
cache = 128M             # calibrated: random, 128 KiB = 763 IOPS
cache-entries = 2500     # calibrated: random, 4 KiB = 2200 IOPS; the prototype had 2000, of a single run
queued-fifo = 0          # structural: with it the random cells are not reached with any cache
read-burst = 8           # not calibrated: no published cell reads and writes
write-burst = 4M         # not calibrated: no published cell reads and writes
