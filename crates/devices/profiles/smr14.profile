# A host-managed SMR hard disk of 14 TB with 52,156 zones, of the tables of "zone append", v11, 2020. Nothing was fitted to
# it: it is the 20 TB disk's cache with the size and rate of this one, and its workload is published in part only (neither
# threads nor zones). It brackets the published numbers, no more.

model = smr              # the drive is a host-managed SMR disk
zones = 52156            # published: "an example drive with 52156 zones"
zone-size = 256M         # 14 TB in so many zones
max-open = 128           # as smr20
queue-depth = 31         # SATA has 32 tags, of which libata keeps one
max-transfer = 4M        # not sensitive: its writes are of 64 KiB, one at a time

rpm = 7200               # the family's data sheets
outer-rate = 233MB/s     # the family's data sheets
inner-radius = 0.55      # as smr20
seek-settle = 1ms        # as smr20
seek-sqrt = 10500us      # as smr20
seek-linear = 6ms        # as smr20

link-rate = 550MB/s      # SATA at 6 Gb/s after 8b/10b coding and framing
command-time = 17us      # as smr20
cache = 128M             # as smr20
cache-entries = 2500     # as smr20
queued-fifo = 0          # as smr20
read-burst = 8           # not calibrated: no published cell reads and writes
write-burst = 4M         # not calibrated: no published cell reads and writes
