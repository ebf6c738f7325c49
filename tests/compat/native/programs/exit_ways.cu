// Ends in every way with work in flight; main runs itself once for each way and looks at the exit status.
#include "check.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

__global__ void work(int *p) { for (int i = 0; i < 1000; i++) atomicAdd(p, 1); }

static int *device_memory;
static std::atomic<bool> waiting{false};
static void start()
{
    CUDA(cudaMalloc(&device_memory, 4));
    CUDA(cudaMemset(device_memory, 0, 4));
    for (int i = 0; i < 20; i++) work<<<4, 32>>>(device_memory);
}

static void at_exit()
{
    int h = 0;
    cudaError_t e = cudaMemcpy(&h, device_memory, 4, cudaMemcpyDeviceToHost);
    if (e != cudaSuccess && e != cudaErrorCudartUnloading) _exit(9);
    if (e == cudaSuccess && h != 20 * 4 * 32 * 1000) _exit(10);
}

struct Owner { // what a library's global object does when the program ends
    int *p = nullptr;
    cudaStream_t s = nullptr;
    ~Owner()
    {
        if (!p) return;
        cudaError_t e = cudaFree(p);
        if (e != cudaSuccess && e != cudaErrorCudartUnloading) _exit(11);
        (void)cudaStreamDestroy(s);
    }
} owner;

static int child(const std::string &way)
{
    if (way == "before") return 0; // no CUDA at all
    start();
    if (way == "return") return 3;
    if (way == "exit") exit(4);
    if (way == "_exit") _exit(5);
    if (way == "abort") abort();
    if (way == "kill") raise(SIGKILL);
    if (way == "segv") *(volatile int *)nullptr = 1;
    if (way == "throw") throw 1;
    if (way == "thread") { std::thread([] { start(); exit(6); }).join(); }
    if (way == "detached") { // another thread is there, and work in flight, when the process ends
        for (int i = 0; i < 50; i++) work<<<8, 256>>>(device_memory);
        std::thread([] { waiting = true; pause(); }).detach();
        while (!waiting) std::this_thread::yield();
        return 7;
    }
    if (way == "handler") { atexit(at_exit); return 8; }
    if (way == "static") { CUDA(cudaMalloc(&owner.p, 64)); CUDA(cudaStreamCreate(&owner.s)); return 12; }
    return 99;
}

int main(int argc, char **argv)
{
    if (argc > 1) return child(argv[1]);
    struct { const char *way; int code, signal; } ways[] = {
        {"before", 0, 0}, {"return", 3, 0}, {"exit", 4, 0}, {"_exit", 5, 0}, {"abort", 0, SIGABRT}, {"kill", 0, SIGKILL}, {"segv", 0, SIGSEGV},
        {"throw", 0, SIGABRT}, {"thread", 6, 0}, {"detached", 7, 0}, {"handler", 8, 0}, {"static", 12, 0}};
    for (auto &w : ways) {
        pid_t pid = fork();
        if (pid == 0) {
            freopen("/dev/null", "w", stderr);
            execl("/proc/self/exe", argv[0], w.way, (char *)nullptr);
            _exit(98);
        }
        int status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        bool good = w.signal ? WIFSIGNALED(status) && WTERMSIG(status) == w.signal : WIFEXITED(status) && WEXITSTATUS(status) == w.code;
        if (!good) { fprintf(stderr, "%s: status %x\n", w.way, status); return 1; }
    }
    puts("ok");
}
