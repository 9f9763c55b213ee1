# A ZNS SSD of 1 TB with zones of 2 GiB, of the tables of the series "Zone write plugging", linux-block, April 2024.
#
# Three numbers, set by three cells; three other cells agree. Random writes of 4 KiB do not (docs/models.md says why), and
# reads are not in the tables at all.

model = zns              # the drive is a ZNS SSD
zones = 904              # public captures of a ZN540 of 1 TB: 904 zones
zone-size = 2G           # published with the tables
zone-capacity = 1077M    # public captures of a ZN540
max-open = 14            # published with the tables
max-active = 14          # published with the tables
max-transfer = 1M        # not sensitive: longest write of the tables
append-max = 1M          # a guess: as max-transfer
queue-depth = 1023       # NVMe queues of 1024 entries, of which one stays empty

latency = 16us           # calibrated: sequential, 4 KiB, depth 1 = 183 MB/s
zone-rate = 1108MB/s     # calibrated: sequential, 1 MiB, depth 16 = 1108 MB/s: of one zone
drive-rate = 1913MB/s    # calibrated: random, 128 KiB = 14.6 kIOPS = 1913 MB/s: of all zones
read-latency = 60us      # not calibrated: a public model of the drive has 50 to 58 us of flash beside 6 us of firmware
