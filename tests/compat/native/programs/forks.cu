#include "check.h"
#include <cerrno>
#include <sys/wait.h>
#include <unistd.h>

__global__ void set(int *p, int v) { *p = v; }

static int compute(int v)
{
    int *d, h = 0;
    CUDA(cudaMalloc(&d, 4));
    set<<<1, 1>>>(d, v);
    CUDA(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(d));
    return h;
}
static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    if (argc > 1) { CHECK(compute(5) == 5); return 21; }
    pid_t first = fork(); // before CUDA was touched: the child has it to itself
    if (first == 0) { CHECK(compute(7) == 7); exit(20); }
    CHECK(wait_for(first) == 20);
    CHECK(compute(9) == 9);
    pid_t second = fork(); // afterwards: the child must not use what it inherited, and is told so
    if (second == 0) {
        int *p;
        cudaError_t e = cudaMalloc(&p, 4);
        _exit(e == cudaErrorInitializationError ? 22 : 100 + e % 100);
    }
    int code = wait_for(second);
    if (code != 22) { fprintf(stderr, "child after init: %d\n", code); return 1; }
    pid_t third = fork(); // fork and exec is a new program
    if (third == 0) { execl("/proc/self/exe", argv[0], "again", (char *)nullptr); _exit(98); }
    CHECK(wait_for(third) == 21);
    CHECK(compute(11) == 11); // the parent never noticed
    puts("ok");
}
