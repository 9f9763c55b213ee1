/* zoneplug.hpp: handles that close themselves, and errors that are thrown. Runs in a folder of its own. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <zoneplug.hpp>

#define CHECK(what) \
	((what) ? (void)0 : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what), std::exit(1)))

template <class F> static zoneplug::error thrown(F &&f)
{
	try {
		f();
	} catch (const zoneplug::error &e) {
		return e;
	}
	std::fprintf(stderr, "nothing was thrown\n");
	std::exit(1);
}

static zoneplug::disk moved(zoneplug::disk d) { return d; }

static void disks()
{
	auto options = zoneplug::create_options();
	options.zones = 4;
	options.zone_size = 1 << 20;
	options.label = "wrapped";
	CHECK(std::string(zoneplug::create("disk.zbd", options).label) == "wrapped");
	auto exists = thrown([&] { zoneplug::create("disk.zbd", options); });
	CHECK(exists.code() == std::errc::device_or_resource_busy && std::strstr(exists.what(), "disk.zbd exists"));

	zoneplug::disk d = moved(zoneplug::disk("disk.zbd"));
	char block[4096] = "block", back[4096];
	CHECK(d.append(2048, block, sizeof(block)) == 2048 && d.property("nr_zones") == 4);
	d.write(2056, block, sizeof(block), ZP_FUA);
	d.flush();
	d.read(2056, back, sizeof(back));
	CHECK(std::memcmp(block, back, sizeof(back)) == 0 && d.report().size() == 4 && d.report(2048, 1)[0].wp == 2064);
	auto misplaced = thrown([&] { d.write(4096 + 8, block, sizeof(block)); });
	CHECK(misplaced.code().value() == EIO && !misplaced.hint().empty());
	CHECK(misplaced.reason() == "NotAtWritePointer");
	d.snapshot("copy.zbd");
	d.finish(2048, 2048);
	d.reset(2048, 2048);
	{
		zoneplug::disk other("mem,zones=2,zone-size=1M");
		d = std::move(other);
	}
	CHECK(d.property("nr_zones") == 2);
	auto sound = zoneplug::check_file("disk.zbd");
	CHECK(sound && sound.counts.zones == 4 && !sound.lines.empty());
}

static void queues()
{
	zoneplug::disk d("mem,zones=2,zone-size=1M");
	std::vector<char> memory(4 * 4096);
	{
		zoneplug::queue q(d, 3);
		zp_op ops[4] = {};
		for (int n = 0; n < 4; n++) {
			ops[n].op = ZP_OP_ZONE_APPEND;
			ops[n].buf = &memory[static_cast<size_t>(n) * 4096];
			ops[n].len = 4096;
		}
		CHECK(q.submit(ops, 4) == 3 && q.submit(ops + 3, 1) == 0);
		zp_completion done[4];
		CHECK(q.wait(done, 3, 4) == 3 && done[2].sector == 16 && q.poll(done, 4) == 0 && q.fd() >= 0);
		std::thread([&] { CHECK(thrown([&] { q.poll(done, 4); }).code().value() == EPERM); }).join();
		CHECK(q.submit(ops, 2) == 2);
	}
	/* The destructor has waited. */
	CHECK(d.report(0, 1)[0].wp == 40);
}

static void logs()
{
	auto d = zoneplug::disk::with_power("mem,zones=4,zone-size=64K", 7);
	std::string longer(5000, 'x');
	zp_log_address second;
	{
		zoneplug::zone_log log(d);
		log.append("first", ZP_LOG_SYNC);
		second = log.append(longer, ZP_LOG_SYNC);
		CHECK(log.read(second) == longer);
		CHECK(thrown([&] { log.append(std::string(70000, 'y')); }).code() == std::errc::message_size);
	}
	d.cut_power();
	zoneplug::zone_log log(d);
	size_t n = 0;
	log.for_each([&](const zp_log_address &at, std::string_view data) {
		n++;
		CHECK(at.sequence == n && (n == 1 ? data == "first" : data == longer));
	});
	CHECK(n == 2 && log.trim(second) == 0);
	log.sync();
}

static void cuts()
{
	bool forgets = false;
	auto work = [&](zp_work *work) {
		for (uint64_t n = 0; n < 5; n++) {
			char block[4096] = {};
			block[0] = static_cast<char>(n + 1);
			zoneplug::check(zp_append(zp_work_disk(work), 0, block, sizeof(block), forgets && n == 3 ? 0 : ZP_FUA));
			zoneplug::check(zp_work_promise(work, &n, sizeof(n)));
		}
	};
	auto look = [](zp_cut *cut) {
		char block[4096];
		for (size_t n = 0; const void *promised = zp_cut_promise(cut, n, nullptr); n++) {
			uint64_t value;
			std::memcpy(&value, promised, sizeof(value));
			zoneplug::check(zp_read(zp_cut_disk(cut), value * 8, block, sizeof(block)));
			if (block[0] != static_cast<char>(value + 1))
				throw std::runtime_error("value " + std::to_string(value) + " is gone");
		}
	};
	auto options = zoneplug::crash_options();
	options.nr_seeds = 2;
	options.cuts = 60;
	CHECK(zoneplug::crash_test("mem,zones=2,zone-size=64K", work, look, options).cuts == 60);
	forgets = true;
	try {
		zoneplug::crash_test("mem,zones=2,zone-size=64K", work, look, options);
		CHECK(!"the missing FUA was found");
	} catch (const zoneplug::power_cut &cut) {
		CHECK(cut.message == "value 3 is gone" && std::strstr(cut.what(), cut.repeat.c_str()));
	}
	CHECK(thrown([&] { zoneplug::crash_test("null", work, look); }).code() == std::errc::invalid_argument);
}

static void served()
{
	zoneplug::serving s({"mem,zones=8", "mem,zones=4"});
	CHECK(s.address().rfind("127.0.0.1:", 0) == 0 && s.nqn().find("org.example") != std::string::npos);
	CHECK(zp_serving_is_served(s.get()) == 1);
	s.stop();
	CHECK(zp_serving_is_served(s.get()) == 0);
	zp_serve_options options = zoneplug::serve_options();
	options.iscsi = "127.0.0.1:0";
	zoneplug::serving scsi({"mem,zones=8"}, options);
	CHECK(scsi.iscsi_address().rfind("127.0.0.1:", 0) == 0 && scsi.iqn().rfind("iqn.", 0) == 0);
	CHECK(scsi.address().empty() && scsi.nqn().empty());
	scsi.stop();
}

int main()
{
	disks();
	queues();
	logs();
	cuts();
	served();
	std::printf("disks, queues, logs, power cuts, served disks\n");
}
