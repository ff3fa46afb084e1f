// Devices: which of a node's GPUs a job's workers see. Decided here, as the head counts GPUs but does not name them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace rubato::node {

class Devices {
 public:
  // `names` as in CUDA_VISIBLE_DEVICES, in order.
  explicit Devices(std::vector<std::string> names) : names_(std::move(names)), used_(names_.size(), 0) {}

  size_t count() const { return names_.size(); }

  // Given back when it goes; must not outlive the Devices.
  class Share {
   public:
    Share() = default;
    // Of `each` thousandths of a GPU for whoever holds some of it.
    Share(Devices& devices, int64_t each) : devices_(&devices), each_(each) {}
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { give_back(); }
    // For the workers with these local ranks and no others: a worker that stays keeps its devices.
    void hold(const std::set<int>& local_ranks);
    // All devices of the job's workers here, in the order of local ranks: with whole GPUs worker i's are the i-th ones,
    // so that torch.cuda.set_device(LOCAL_RANK) finds its own, as under torchrun. In the place of a local rank that has
    // no worker any more stands some device that nobody of this job uses.
    std::string visible() const;

   private:
    using Parts = std::map<size_t, int64_t>;  // thousandths by device
    void give_back();
    void release(const Parts& parts);
    Devices* devices_ = nullptr;
    int64_t each_ = 0;
    std::map<int, Parts> held_;  // by local rank
  };

  // For `workers` workers of `each` thousandths of a GPU. The head has counted: when it does not fit (an older
  // generation has just ended and another job is late), the least used ones are shared rather than nothing given.
  Share take(int workers, int64_t each);

 private:
  void take_one(int64_t amount, std::map<size_t, int64_t>& taken);

  std::vector<std::string> names_;
  std::vector<int64_t> used_;  // thousandths
};

}  // namespace rubato::node
