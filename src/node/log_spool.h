// LogSpool: the log lines of one job on this node, on disk until the head has them.
//
//   worker ──add──▶ buffer ──▶ segments on disk ──take──▶ in flight ──acked──▶ gone
//                                  ▲                          │
//                                  └── rewind (a new connection: what was not acknowledged is sent again)
//
// Memory holds one buffer and the ends of what is in flight, never the lines: a noisy worker costs disk, up to
// kSpoolBytesMax, and then lines. It is never made to wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elastic/node_wire.h"
#include "world/world.h"

namespace rubato::node {

inline constexpr uint64_t kSpoolBytesMax = uint64_t{64} << 20;  // not acknowledged, per job

class LogSpool {
 public:
  // Goes on with what an earlier agent left in `folder`, numbers included. `on_lines` is called when there are lines
  // to send where there were none.
  // `first_sequence`: a spool made anew for a job that was here before goes on counting, or the head would take its
  // lines for those that it has.
  LogSpool(World& world, std::string folder, std::function<void()> on_lines, uint64_t first_sequence = 1);

  // The number of the next line.
  uint64_t next_sequence() const { return next_sequence_; }

  // Never throws: lines that the disk or the bound has no room for are counted, and a line says how many there were.
  void add(Generation generation, int rank, bool is_stderr, std::string text);
  // No more lines come for now: tell about dropped ones even if that goes over the bound.
  void settle();

  void flush();  // to disk: an agent that is killed loses what was not

  // The next lines to send, of about `bytes_max` bytes; empty: none now.
  std::vector<elastic::LogLine> take(size_t bytes_max);
  void rewind();
  void acked(uint64_t sequence);

  bool all_sent();
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }
  uint64_t unacked_bytes() const { return added_bytes_ - acked_bytes_; }

  void remove();  // the files; nothing may be added afterwards

 private:
  struct Segment {
    uint64_t number = 0;
    uint64_t size = 0;
  };
  struct Place {  // in the segments
    uint64_t segment = 0;
    uint64_t offset = 0;
    bool operator==(const Place&) const = default;
  };
  struct Batch {
    uint64_t last_sequence = 0;
    uint64_t bytes = 0;
    Place end;
  };

  void adopt();
  void put(Generation generation, int rank, bool is_stderr, std::string_view text);
  void begin_segment();
  std::string path(uint64_t segment) const;
  Place end() const;
  void next_segment_if_read();
  void drop_acked_segments();

  World& world_;
  const std::string folder_;
  std::function<void()> on_lines_;

  std::deque<Segment> segments_;  // the last one is written to while appender_ is set
  std::unique_ptr<Appender> appender_;
  std::string buffer_;
  uint64_t buffered_lines_ = 0;

  uint64_t next_sequence_;
  uint64_t acked_sequence_ = 0;
  uint64_t added_bytes_ = 0, acked_bytes_ = 0, in_flight_bytes_ = 0;
  uint64_t dropped_ = 0;
  bool no_room_ = false;  // the disk took nothing at the last try
  Generation last_generation_ = 0;
  int last_rank_ = 0;

  Place read_, acked_;
  std::deque<Batch> in_flight_;
};

}  // namespace rubato::node
