// A library with a CUDA runtime of its own, opened, used, closed and opened again, as cuBLAS and its like have theirs.
#include "../programs/check.h"
#include <dlfcn.h>
#include <thread>

__global__ void twice(int *p) { p[threadIdx.x] *= 2; }

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int *d, h[32];
    CUDA(cudaMalloc(&d, sizeof h));
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
        auto plus = (int (*)(int *, int, int))dlsym(library, "library_plus");
        CHECK(plus);
        for (int i = 0; i < 32; i++) h[i] = i;
        CUDA(cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice));
        twice<<<1, 32>>>(d);
        CHECK(plus(d, 32, 100 + round) == 0); // the same device memory, the same primary context
        int other = -1;
        std::thread([&] { other = plus(d, 32, 1000); }).join();
        CHECK(other == 0);
        CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 32; i++) CHECK(h[i] == 2 * i + 1100 + round);
        CHECK(dlclose(library) == 0);
    }
    twice<<<1, 32>>>(d);
    CUDA(cudaDeviceSynchronize());
    puts("ok");
}
