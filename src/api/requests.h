// What people send: documents of requests.
#pragma once

#include "api/scale_documents.h"

namespace rubato::api {

struct Configure {
  static constexpr const char* kName = "Configure";
  std::string text;
  std::optional<std::string> file;
  std::optional<std::string> files_hash;
  std::optional<bool> apply, no_restart, restart;
};
template <class Io>
void fields(Io& io, Configure& d) {
  io("text", d.text, "the cluster file");
  io("file", d.file, "its name in error messages");
  io("files_hash", d.files_hash, "of the files that are mounted: other ones renew the nodes");
  io("apply", d.apply, "false: only tell what would change");
  io("no_restart", d.no_restart, "do not set nodes up again that differ only in their set-up");
  io("restart", d.restart, "set all nodes up again");
}

struct PlanRequest {
  static constexpr const char* kName = "PlanRequest";
  std::string text;
  std::optional<std::string> file;
};
template <class Io>
void fields(Io& io, PlanRequest& d) {
  io("text", d.text, "a cluster file");
  io("file", d.file, "its name in error messages");
}

struct Bundles {
  static constexpr const char* kName = "Bundles";
  std::vector<Bundle> bundles;
};
template <class Io>
void fields(Io& io, Bundles& d) {
  io("bundles", d.bundles, "instead of those asked for before; an empty list clears");
}

struct ErrorBody {
  static constexpr const char* kName = "ErrorBody";
  std::string code;
  std::string message;
  std::optional<std::string> where, hint;
};
template <class Io>
void fields(Io& io, ErrorBody& d) {
  io("code", d.code, "", {"usage", "unauthorized", "not_found", "conflict", "too_large", "unavailable", "failed"});
  io("message", d.message, "what failed");
  io("where", d.where, "");
  io("hint", d.hint, "how to fix it");
}

struct ErrorAnswer {
  static constexpr const char* kName = "Error";
  ErrorBody error;
};
template <class Io>
void fields(Io& io, ErrorAnswer& d) {
  io("error", d.error, "");
}

}  // namespace rubato::api
