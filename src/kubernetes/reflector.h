// Reflector: keeps somebody up to date with all objects of one kind: list, then watch, for ever.
//
// A watch that ends or is cut goes on from the last version that was seen; one that is too old (410) lists again.
// Errors are waited out with growing pauses and told to the log once for each kind of them. Lists are read from etcd
// (no resourceVersion), never from a cache that may be older than what we saw.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/log.h"
#include "kubernetes/client.h"
#include "kubernetes/watch_decoder.h"

namespace rubato::kubernetes {

// How far a list goes: it shows everything up to this version, and nothing of what came after.
struct ListStart {
  uint64_t version = 0;
  bool rewound = false;  // older than what was seen before: the server was restored from a backup
};

class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // A list begins; at its end, what was not put since is gone, unless it is newer than the list.
  virtual void begin_list(ListStart start) = 0;
  virtual void end_list() = 0;
  virtual void put(const nlohmann::json& object) = 0;
  virtual void remove(const nlohmann::json& object) = 0;
};

struct ReflectorSpec {
  Resource resource;
  std::string namespace_name;  // empty: all
  std::string label_selector;
  int page_size = 100;  // of pods: a megabyte of text, and some of it as values
};

class Reflector {
 public:
  // All of them outlive it.
  Reflector(Client& client, ReflectorSpec spec, ObjectSink& sink, Log log);
  // Never returns; cancel it. Throws only kAuth and kNotFound of the first list: a person has to help.
  Task<void> run();

 private:
  Task<void> list();
  ListStart start_of(const std::string& version) const;
  Task<bool> watch();  // false: list again
  // False: this watch is over.
  bool apply(WatchEvent event);
  Task<void> pause(const std::string& why);
  void warn(const std::string& why);

  Client& client_;
  const ReflectorSpec spec_;
  ObjectSink& sink_;
  Log log_;
  std::string version_;
  bool listed_once_ = false;
  bool expired_ = false;
  int failures_ = 0;
  std::string last_warning_;
};

}  // namespace rubato::kubernetes
