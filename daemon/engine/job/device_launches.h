// The GPU worker of a job, and what it is told of a batch: where each rank's tensors lie. It
// belongs to the control loop.
#pragma once

#include <memory>
#include <utility>

#include "daemon/engine/device/device_job.h"
#include "daemon/engine/device/device_operation.h"
#include "daemon/engine/job/path_host.h"
#include "daemon/engine/job/submission_ledger.h"

namespace rueda::engine {

class DeviceLaunches {
 public:
  // Both must outlive the object.
  DeviceLaunches(PathHost& host, SubmissionLedger& ledger) : host_(host), ledger_(ledger) {}

  void open(std::unique_ptr<DeviceJob> worker) { worker_ = std::move(worker); }
  bool is_open() const { return worker_ != nullptr; }
  // Returns the worker. open() must have been called.
  DeviceJob& worker() { return *worker_; }

  DeviceLaunch how(const core::Launch& launch) const;
  // Returns a function that may be called while the launch's process set is there.
  FindDevicePlaces places(const core::Launch& launch);

 private:
  PathHost& host_;
  SubmissionLedger& ledger_;
  std::unique_ptr<DeviceJob> worker_;
};

}  // namespace rueda::engine
