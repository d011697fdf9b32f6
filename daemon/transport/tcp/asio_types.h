// Asio's sockets and timers, bound to io_context's own executor: the default executor is
// type-erased, which costs a virtual call or two in every handler of the data path.
#pragma once

#include <chrono>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace rueda::transport::tcp {

namespace asio = boost::asio;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
using Endpoint = asio::ip::tcp::endpoint;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;
using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, Executor>;
using Resolver = asio::ip::basic_resolver<asio::ip::tcp, Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

}  // namespace rueda::transport::tcp
