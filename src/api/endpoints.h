// The paths of the head's HTTP interface: head/api.cc has their handlers, docs/openapi.yaml is made from this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rubato::api {

class Components;
using MakeSchema = nlohmann::ordered_json (*)(Components& components);

struct Parameter {
  enum class Kind { kInteger, kBoolean, kTime };
  std::string name;
  Kind kind = Kind::kInteger;
  std::string about;
};

struct Answer {
  int status = 200;
  std::string about;
  MakeSchema schema = nullptr;  // of application/json; null: `about` says what it is
};

struct Endpoint {
  std::string method;
  std::string path;  // with {names}
  std::string summary;
  size_t body_bytes_max = 0;
  bool is_open = false;  // needs no token
  std::vector<Parameter> query = {};
  MakeSchema body = nullptr;
  std::vector<Answer> answers = {};
};

const std::vector<Endpoint>& endpoints();

}  // namespace rubato::api
