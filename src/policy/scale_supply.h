// Supply: which nodes can still be had while a plan is being made, at what price, and what stands against the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policy/scale.h"

namespace rubato::policy {

// How far a limit is from being lifted: the lower, the sooner a person can do something about it.
int steps_away(ScaleLimit limit);

class Supply {
 public:
  // Counts the nodes of the input that are there and coming. `input` outlives it.
  explicit Supply(const ScaleInput& input);

  size_t types() const { return types_.size(); }
  const std::string& name(size_t type) const { return *types_[type].name; }
  const ScaleType& type(size_t type) const { return *types_[type].spec; }
  std::optional<size_t> find(const std::string& name) const;
  const std::vector<int64_t>& priorities() const { return priorities_; }  // of the types, the highest first

  // Of the next node of this type; nullopt when none can be had.
  std::optional<double> price(size_t type) const;
  // Takes the next node; returns the index of its offering. There must be one.
  size_t open(size_t type);
  void close(size_t type, size_t offering);
  void reopen(size_t type, size_t offering);  // one that was just closed

  // Of the cheapest offering that policy, cap and stock allow, however many nodes there are. nullopt: there is none, or
  // the type has no workers at all.
  std::optional<double> usual_price(size_t type) const;

  // What stands against one more node of this type, and in words. kNone when one can be had.
  ScaleLimit limit(size_t type) const;
  std::string limit_text(size_t type) const;
  // The offerings of a type that policy, cap or stock refuse.
  std::vector<ScaleReason::Against> refusals(size_t type) const;

  const Offering& offering(size_t type, size_t index) const { return types_[type].options[index].offering; }
  double price_of(size_t type, size_t index) const { return types_[type].options[index].price; }
  bool estimated(size_t type, size_t index) const { return types_[type].options[index].estimated; }

  int launches_max() const;                 // in one decision
  int workers() const { return workers_; }  // there, coming and opened
  int workers(size_t type) const { return types_[type].workers; }
  double cost() const { return cost_; }  // per hour, of the same and the head

  // Of a node that is there.
  double price_of(const std::string& type, const std::string& zone, Market market) const;

 private:
  struct Option {
    Offering offering;
    double price = 0;
    bool estimated = false;
    ScaleLimit refused = ScaleLimit::kNone;  // for good: policy, price cap, blocked
    int used = 0;                            // there, coming and opened
  };
  struct Type {
    const std::string* name = nullptr;
    const ScaleType* spec = nullptr;
    std::vector<Option> options;  // the cheapest first
    int workers = 0;
    double list_price = 0;
  };

  Type make_type(const std::string& name, const ScaleType& spec) const;
  void count(const std::string& type, const std::string& zone, Market market, int nodes, bool head);
  ScaleLimit against(const Type& type, const Option& option) const;
  const Option* next(const Type& type) const;

  const ScaleInput* input_;
  std::vector<Type> types_;  // by name
  std::vector<int64_t> priorities_;
  int workers_ = 0;
  int opened_ = 0;
  int on_demand_ = 0;
  double cost_ = 0;
};

}  // namespace rubato::policy
