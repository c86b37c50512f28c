// A real `animegamer-rt serve` in a process of its own. The command is ANIMEGAMER_SERVE of the environment. POSIX only.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

class LiveServer {
public:
    /// Started on a free pair of ports, and ready.
    explicit LiveServer(const std::string &device = "simulated:0.2") : device_(device) {
        char folder[] = "/tmp/animegamer-test-XXXXXX";
        if (mkdtemp(folder) == nullptr) {
            throw std::runtime_error("no folder for the server's state");
        }
        state_ = folder;
        start();
    }
    ~LiveServer() {
        end(SIGTERM);
        std::error_code ignored;
        std::filesystem::remove_all(state_, ignored);
    }
    LiveServer(const LiveServer &) = delete;
    LiveServer &operator=(const LiveServer &) = delete;

    /// Start it (again, with the same port and state) and wait until it is ready.
    void start() {
        const char *command = std::getenv("ANIMEGAMER_SERVE");
        if (command == nullptr) {
            throw std::runtime_error("set ANIMEGAMER_SERVE to the command that starts a server: \"animegamer-rt serve\"");
        }
        const std::string line = std::string("exec ") + command + " --device " + device_ + " --port " + std::to_string(port) +
                                 " --config " + state_ + "/serve.toml --state-dir " + state_ + " 2>>" + state_ + "/test.log";
        std::ofstream(state_ + "/serve.toml") << "turns_per_minute = 0\n";
        int ends[2];
        if (pipe(ends) != 0) {
            throw std::runtime_error("no pipe");
        }
        process_ = fork();
        if (process_ == 0) {
            setpgid(0, 0);
            dup2(ends[1], 1);
            ::close(ends[0]);
            ::close(ends[1]);
            execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char *>(nullptr));
            _exit(127);
        }
        ::close(ends[1]);
        std::string said;
        char byte = 0;
        while (said.find("ready tcp://") == std::string::npos || byte != '\n') {
            if (read(ends[0], &byte, 1) != 1) {
                throw std::runtime_error("the server ended: " + said);
            }
            said += byte;
        }
        ::close(ends[0]);
        const auto at = said.find(':', said.find("ready tcp://") + 12);
        port = std::stoi(said.substr(at + 1));
    }

    void end(int number) {
        if (process_ > 0) {
            // A kill is for its worker as well, as when the machine loses power; else it ends its worker itself.
            kill(number == SIGKILL ? -process_ : process_, number);
            waitpid(process_, nullptr, 0);
            process_ = 0;
        }
    }

    std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port); }

    int port = 0;

private:
    std::string device_, state_;
    pid_t process_ = 0;
};
