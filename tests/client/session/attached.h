// Attaches a session to a fake daemon.
#pragma once

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "client/src/session/session.h"
#include "tests/client/fake_daemon.h"

namespace rueda::client {

inline std::unique_ptr<Session> attach(const FakeDaemon& daemon) {
  auto session = Session::attach(daemon.config());
  EXPECT_TRUE(session.is_ok()) << session.status().message();
  return std::move(session).value();
}

}  // namespace rueda::client
