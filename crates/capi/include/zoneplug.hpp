/*
 * libzoneplug for programs in C++17: zoneplug.h with handles that close themselves, and errors that are thrown.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Header only. A handle belongs to one owner, can be moved, and is closed by its destructor. get() gives the handle of C, for calls
 * that have no method here. A call that fails throws zoneplug::error, a std::system_error with the errno; what() has the text.
 * Addresses are sectors of 512 bytes, as in zoneplug.h, which says what each call does.
 */
#ifndef ZONEPLUG_HPP
#define ZONEPLUG_HPP

#include "zoneplug.h"

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace zoneplug {

/* Why a call has failed. */
class error : public std::system_error {
public:
	/* The error of the calling thread's last call, which has returned a negative errno. */
	explicit error(int64_t returned)
	    : std::system_error(static_cast<int>(-returned), std::generic_category(), zp_error_message()),
	      hint_(zp_error_hint() ? zp_error_hint() : ""),
	      reason_(zp_error_reason() ? zp_error_reason() : "") {}

	/* A line that says what to try, or "". */
	const std::string &hint() const noexcept { return hint_; }
	/* The name of what was wrong, such as "Exists"; empty if it has none. */
	const std::string &reason() const noexcept { return reason_; }

private:
	std::string hint_, reason_;
};

/* Throws if a call has failed, and returns what it returned. */
template <class T> T check(T returned)
{
	if (returned < 0)
		throw error(returned);
	return returned;
}

namespace detail {

template <class T, void (*close)(T *)> struct closer {
	void operator()(T *handle) const noexcept { close(handle); }
};
template <class T, void (*close)(T *)> using handle = std::unique_ptr<T, closer<T, close>>;

/* Does nothing in another thread than the queue's, as zp_queue_close does there. */
inline void close_queue(zp_queue *queue) noexcept { zp_queue_close(queue, -1); }

/* Options of C with their size, and all else zero. */
template <class T> T options()
{
	T all{};
	all.struct_size = sizeof(T);
	return all;
}

/* No exception may go through the library: a line that finds no memory ends the program. */
inline void keep_line(const char *line, void *arg) noexcept
{
	static_cast<std::vector<std::string> *>(arg)->emplace_back(line);
}

} // namespace detail

/* Defaults, of which a program changes what it wants. */
inline zp_create_options create_options() { return detail::options<zp_create_options>(); }
inline zp_log_options log_options() { return detail::options<zp_log_options>(); }
inline zp_crash_options crash_options() { return detail::options<zp_crash_options>(); }
inline zp_serve_options serve_options() { return detail::options<zp_serve_options>(); }

/* A disk. Any number of threads may use it at a time. */
class disk {
public:
	explicit disk(const std::string &spec)
	{
		zp_disk *opened;
		check(zp_open(spec.c_str(), &opened));
		disk_.reset(opened);
	}

	/* A disk in memory whose power cut_power() cuts. */
	static disk with_power(const std::string &spec, uint64_t seed = 1)
	{
		zp_disk *opened;
		check(zp_crash_open(spec.c_str(), seed, &opened));
		return disk(opened);
	}

	/* Takes over a handle of C. */
	explicit disk(zp_disk *opened) noexcept : disk_(opened) {}
	zp_disk *get() const noexcept { return disk_.get(); }

	void read(uint64_t sector, void *buf, size_t len) const { check(zp_read(get(), sector, buf, len)); }
	void write(uint64_t sector, const void *buf, size_t len, uint32_t f = 0) const { check(zp_write(get(), sector, buf, len, f)); }
	uint64_t append(uint64_t zone_start, const void *buf, size_t len, uint32_t flags = 0) const
	{
		return static_cast<uint64_t>(check(zp_append(get(), zone_start, buf, len, flags)));
	}
	void flush() const { check(zp_flush(get())); }
	void reset(uint64_t sector, uint64_t nr_sectors) const { check(zp_reset(get(), sector, nr_sectors)); }
	void reset_all() const { check(zp_reset_all(get())); }
	void finish(uint64_t sector, uint64_t nr_sectors) const { check(zp_finish(get(), sector, nr_sectors)); }
	void cut_power() const { check(zp_crash_cut(get())); }

	/* Up to `nr` zones, from the one that holds `sector` on. */
	std::vector<zp_zone> report(uint64_t sector = 0, uint32_t nr = 1024) const
	{
		std::vector<zp_zone> zones(nr);
		zones.resize(size_t(check(zp_report(get(), sector, zones.data(), nr, 0))));
		return zones;
	}
	uint64_t property(const char *name) const
	{
		uint64_t value;
		check(zp_property(get(), name, &value));
		return value;
	}
	void snapshot(const std::string &path) const { check(zp_snapshot(get(), path.c_str(), 0, nullptr, nullptr, nullptr)); }

private:
	detail::handle<zp_disk, zp_close> disk_;
};

/* A queue: many operations at a time, from the thread that has opened it. Its destructor waits for what is in flight. */
class queue {
public:
	queue(const disk &on, uint32_t depth)
	{
		zp_queue *opened;
		check(zp_queue_open(on.get(), depth, &opened));
		queue_.reset(opened);
	}

	zp_queue *get() const noexcept { return queue_.get(); }
	/* How many operations the queue took; 0 if it is full. */
	size_t submit(const zp_op *ops, size_t nr) const
	{
		int taken = zp_queue_submit(get(), ops, uint32_t(nr));
		return taken == -EAGAIN ? 0 : size_t(check(taken));
	}
	size_t poll(zp_completion *all, size_t max) const { return size_t(check(zp_queue_poll(get(), all, uint32_t(max)))); }
	size_t wait(zp_completion *all, size_t min, size_t max, int timeout_ms = -1) const
	{
		return size_t(check(zp_queue_wait(get(), all, uint32_t(min), uint32_t(max), timeout_ms)));
	}
	int fd() const { return check(zp_queue_fd(get())); }

private:
	detail::handle<zp_queue, detail::close_queue> queue_;
};

/* A log in the zones of a disk, which it keeps open. Any number of threads may use it at a time. */
class zone_log {
public:
	explicit zone_log(zp_disk *on, const zp_log_options &options = log_options())
	{
		zp_log *opened;
		check(zp_log_open(on, &options, &opened));
		log_.reset(opened);
	}
	explicit zone_log(const disk &on, const zp_log_options &options = log_options()) : zone_log(on.get(), options) {}

	zp_log *get() const noexcept { return log_.get(); }
	/* With ZP_LOG_SYNC the record is durable when this returns. */
	zp_log_address append(std::string_view record, uint32_t flags = 0) const
	{
		zp_log_address at;
		check(zp_log_append(get(), record.data(), record.size(), flags, &at));
		return at;
	}
	void sync() const { check(zp_log_sync(get())); }
	std::string read(const zp_log_address &at) const
	{
		std::string data(256, '\0');
		size_t len = size_t(check(zp_log_read(get(), &at, data.data(), data.size())));
		bool is_part = len > data.size();
		data.resize(len);
		if (is_part)
			check(zp_log_read(get(), &at, data.data(), data.size()));
		return data;
	}
	size_t trim(const zp_log_address &before) const { return size_t(check(zp_log_trim(get(), &before))); }

	/* Calls f(const zp_log_address &, std::string_view) for each record, the oldest first. */
	template <class F> void for_each(F &&f) const
	{
		zp_log_cursor *opened;
		check(zp_log_cursor_open(get(), nullptr, &opened));
		detail::handle<zp_log_cursor, zp_log_cursor_close> cursor(opened);
		zp_log_record record;
		while (check(zp_log_next(cursor.get(), &record)))
			f(record.address, std::string_view(static_cast<const char *>(record.data), record.len));
	}

private:
	detail::handle<zp_log, zp_log_close> log_;
};

/* A power cut breaks a promise. what() has all of it, in several lines. */
class power_cut : public std::runtime_error {
public:
	explicit power_cut(const zp_crash_failure &f) : runtime_error(f.text), message(f.message), repeat(f.repeat) {}
	std::string message, repeat;
};

/*
 * zp_crash_test: `work` is called with a zp_work *, `check_cut` with a zp_cut *. They fail by an exception.
 * Throws power_cut at the first promise that a cut breaks.
 */
template <class W, class C>
zp_crash_report crash_test(const std::string &spec, W work, C check_cut, const zp_crash_options &options = crash_options())
{
	std::pair<W &, C &> both(work, check_cut);
	zp_crash_report report{};
	zp_crash_failure *found = nullptr;
	auto run = [](zp_work *w, void *arg) {
		try {
			static_cast<std::pair<W &, C &> *>(arg)->first(w);
			return 0;
		} catch (...) {
			return -1;
		}
	};
	auto look = [](zp_cut *cut, void *arg) {
		try {
			static_cast<std::pair<W &, C &> *>(arg)->second(cut);
			return 0;
		} catch (const std::exception &e) {
			return zp_cut_broken(cut, e.what());
		} catch (...) {
			return -1;
		}
	};
	check(zp_crash_test(spec.c_str(), &options, run, look, &both, &report, &found));
	detail::handle<zp_crash_failure, zp_crash_failure_free> failure(found);
	if (failure)
		throw power_cut(*failure);
	return report;
}

/* Makes a disk in a new file. */
inline zp_identity create(const std::string &path, const zp_create_options &options)
{
	zp_identity identity;
	check(zp_create(path.c_str(), &options, &identity));
	return identity;
}

struct check_result {
	std::vector<std::string> lines;
	zp_check_report counts;
	explicit operator bool() const noexcept { return counts.repaired >= counts.problems; }
};

/* Checks the disk in a file that no process writes. The result is true if no problem is left. */
inline check_result check_file(const std::string &path, uint32_t flags = 0)
{
	check_result found{};
	check(zp_check(path.c_str(), flags, &found.counts, detail::keep_line, &found.lines));
	return found;
}

/* Disks that are served over NVMe/TCP or iSCSI until stop(), or the end of this. */
class serving {
public:
	explicit serving(const std::vector<std::string> &specs, const zp_serve_options &options = serve_options())
	{
		std::vector<const char *> all;
		for (const std::string &spec : specs)
			all.push_back(spec.c_str());
		zp_serving *started;
		check(zp_serve(all.data(), uint32_t(all.size()), &options, &started));
		serving_.reset(started);
	}

	zp_serving *get() const noexcept { return serving_.get(); }
	std::string address() const { return zp_serving_address(get()); }
	std::string nqn() const { return zp_serving_nqn(get()); }
	std::string iscsi_address() const { return zp_serving_iscsi_address(get()); }
	std::string iqn() const { return zp_serving_iqn(get()); }
	void stop() const { check(zp_serving_stop(get())); }

private:
	detail::handle<zp_serving, zp_serving_close> serving_;
};

} // namespace zoneplug

#endif
