// LogSpool: the log lines of one job on this node, on disk until the head has them.
//
//   worker ──▶ its own file ──add──▶ buffer ──▶ segments on disk ──take──▶ in flight ──acked──▶ gone
//                  │                                ▲  ▲                       │
//                  └── adopt (of a dead agent) ─────┘  └── rewind (a new connection, or a head whose disk is full:
//                                                          what was not acknowledged is sent again)
//
// Memory holds one buffer and the ends of what is in flight, never the lines: a noisy worker costs disk. Who prints
// faster than the head takes it is slowed, as by a pipe, once kSpoolBytesMax wait (has_room). Without a head, or with
// one whose disk is full, workers go on and the spool grows, but a tenth of the disk stays free. Lines are lost only
// when the disk takes none; they are counted, and a line at their place says how many (LogLine::missing_lines). As
// every line, that one stays until the head has it: on disk, or in memory if there is still no room when the last
// worker has ended.
//
// A line that a worker has written outlives the agent, killed at whatever moment. Each output of a worker goes to a
// file first (OutputTarget::path). Each record in a segment says where its line ends in that file; so whoever comes
// next knows which bytes are lines already, and adds the rest. `marks` says the same for segments that are gone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastic/node_wire.h"
#include "world/world.h"

namespace rubato::node {

// One output of one worker.
struct OutputId {
  Generation generation = 0;
  int rank = 0;
  bool is_stderr = false;
  auto operator<=>(const OutputId&) const = default;
};

inline constexpr uint64_t kSpoolBytesMax = uint64_t{64} << 20;  // not acknowledged, per job, while there is a head

class LogSpool {
 public:
  static constexpr const char* kOutputs = "/outputs";  // in the spool's folder: the files of workers' outputs

  // Goes on with what an earlier agent left in `folder`, numbers included. None of its workers is alive, and nobody
  // adds to their files any more. `on_lines` is called when there are lines to send where there were none.
  // `first_sequence`: a spool made anew for a job that was here before goes on counting, or the head would take its
  // lines for those that it has. `owner`: under whose name the lines are numbered, if nobody was here before.
  LogSpool(World& world, std::string folder, std::function<void()> on_lines, uint64_t first_sequence = 1,
           AgentId owner = {});

  // The agent that made this spool, maybe long dead: the head knows its lines by this name and their numbers. Empty
  // for a spool of a version that did not write it down.
  const AgentId& owner() const { return owner_; }

  // The number of the next line.
  uint64_t next_sequence() const { return next_sequence_; }

  // The file for an output of a worker that is about to start.
  std::string begin_output(const OutputId& id);
  // No worker is alive and all of their lines were added: their files go.
  void finish_outputs();

  // Whether a worker may print more now. `head_takes`: a head is there; one that refuses lines does not take them.
  bool has_room(bool head_takes);

  // Never throws: lines that the disk has no room for are counted, and a line says how many there were.
  // `end`: behind the line in the output's file; 0: it is nobody's output. `continues`: as LogLine's.
  void add(Generation generation, int rank, bool is_stderr, std::string text, uint64_t end = 0, bool continues = false);
  // No more lines come for now: tell about missing ones.
  void settle();

  void flush();  // to disk: an agent that is killed loses what was not

  // The next lines to send, of about `bytes_max` bytes; empty: none now. A head that has refused lines is tried with
  // one batch at a time, from retry_at() on.
  std::vector<elastic::LogLine> take(size_t bytes_max);
  // The last line that was taken since the last rewind; 0: none.
  uint64_t sent_sequence() const { return sent_sequence_; }
  void rewind();
  void acked(uint64_t sequence);
  // The head has the lines up to this one, and no room for the next.
  void refused(uint64_t sequence);
  std::optional<Instant> retry_at() const { return retry_at_; }

  // The head has all that it can get.
  bool all_kept() const;
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

  // How far an output's bytes are lines.
  struct Output {
    uint64_t added = 0;    // in the buffer or a segment
    uint64_t skipped = 0;  // added, or missing
    uint64_t safe = 0;     // in a segment, or in marks
    uint64_t given_back = 0;
  };

  void adopt();
  void adopt_segment(const Files::Entry& entry);
  void adopt_marks();
  void adopt_outputs();
  void adopt_output(const OutputId& id, const std::string& path);
  void add_line(const OutputId& id, std::string text, uint64_t end, bool continues, WallTime time);
  void put(const OutputId& id, std::string_view text, uint64_t end, uint32_t flags, WallTime time);
  void put_missing(Generation generation, int rank, uint64_t lines, uint64_t bytes);
  void drop_buffer();
  bool mark_dropped();
  bool write_marks();
  void give_back_space();
  std::string output_path(const OutputId& id) const;
  uint64_t next_segment() const;  // its number
  void begin_segment();
  void hold_missing();
  std::string path(uint64_t segment) const;
  Place end() const;
  void next_segment_if_read();
  std::vector<elastic::LogLine> take_from(const Segment& segment, size_t bytes_max);
  std::vector<elastic::LogLine> take_from_memory();
  void acked_up_to(uint64_t sequence);
  void drop_acked_segments();

  World& world_;
  const std::string folder_;
  std::function<void()> on_lines_;
  AgentId owner_;

  std::deque<Segment> segments_;  // the last one is written to while appender_ is set
  std::unique_ptr<Appender> appender_;
  std::string buffer_;

  uint64_t next_sequence_;
  uint64_t acked_sequence_ = 0;
  uint64_t sent_sequence_ = 0;
  std::optional<Instant> retry_at_;  // the head has refused lines
  uint64_t added_bytes_ = 0, acked_bytes_ = 0, in_flight_bytes_ = 0;
  struct Missing {
    uint64_t lines = 0, bytes = 0;
  };
  std::map<std::pair<Generation, int>, Missing> missing_;  // by rank: not told yet
  // Lines about missing ones that no disk takes, until the head has them; the first `held_sent_` are in flight.
  struct Held {
    elastic::LogLine line;
    uint64_t before_segment = 0;  // its place among the segments, by the number of the next one
  };
  std::deque<Held> held_;
  size_t held_sent_ = 0;
  uint64_t dropped_bytes_ = 0;                             // since marks told of it
  bool no_room_ = false;                                   // the disk took nothing at the last try
  std::map<OutputId, Output> outputs_;  // of workers that are alive, or have been since finish_outputs()
  uint64_t marked_sequence_ = 0;        // next_sequence_ as marks have it
  uint64_t marked_segment_ = 0;         // marks know all of the segments before this one

  Place read_, acked_;
  std::deque<Batch> in_flight_;
};

}  // namespace rubato::node
