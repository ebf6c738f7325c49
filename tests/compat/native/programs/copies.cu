#include "check.h"
#include <cstring>
#include <vector>

__device__ int symbol[16] = {1, 2, 3, 4};
__constant__ int constants[8];
__global__ void from_constants(int *out) { out[threadIdx.x] = constants[threadIdx.x] + symbol[threadIdx.x]; }

int main()
{
    const int w = 48, h = 20, depth = 3; // bytes, rows, slices
    std::vector<unsigned char> a(w * h * depth), b(w * h * depth);
    for (size_t i = 0; i < a.size(); i++) a[i] = i * 31 + 7;

    // 1D in all kinds
    unsigned char *x, *y;
    CUDA(cudaMalloc(&x, a.size()));
    CUDA(cudaMalloc(&y, a.size()));
    CUDA(cudaMemcpy(x, a.data(), a.size(), cudaMemcpyDefault));
    CUDA(cudaMemcpy(y, x, a.size(), cudaMemcpyDefault));
    CUDA(cudaMemcpy(b.data(), y, a.size(), cudaMemcpyDefault));
    CHECK(a == b);
    std::vector<unsigned char> c(a.size());
    CUDA(cudaMemcpy(c.data(), a.data(), a.size(), cudaMemcpyHostToHost));
    CHECK(c == a);
    CUDA(cudaMemcpyPeer(y, 0, x, 0, 10));
    CUDA(cudaMemcpy(x, a.data(), 0, cudaMemcpyHostToDevice));

    // 2D: pitched device memory, odd pitch on the host
    unsigned char *p;
    size_t pitch;
    CUDA(cudaMallocPitch(&p, &pitch, w, h));
    CHECK(pitch >= w && pitch % 32 == 0);
    CUDA(cudaMemset2D(p, pitch, 0, w, h));
    CUDA(cudaMemcpy2D(p, pitch, a.data(), w, w - 5, h, cudaMemcpyHostToDevice));
    std::fill(b.begin(), b.end(), 9);
    CUDA(cudaMemcpy2D(b.data(), w, p, pitch, w, h, cudaMemcpyDeviceToHost));
    for (int r = 0; r < h; r++)
        for (int i = 0; i < w; i++) CHECK(b[r * w + i] == (i < w - 5 ? a[r * w + i] : 0));
    for (size_t i = w * h; i < b.size(); i++) CHECK(b[i] == 9);
    CUDA(cudaMemcpy2D(x, w, p, pitch, w, h, cudaMemcpyDeviceToDevice));
    CUDA(cudaMemcpy2DAsync(c.data(), w, x, w, w, h, cudaMemcpyDeviceToHost));
    CUDA(cudaDeviceSynchronize());
    CHECK(memcmp(c.data(), b.data(), w * h) == 0);

    // 3D
    cudaExtent extent = make_cudaExtent(w, h, depth);
    cudaPitchedPtr volume;
    CUDA(cudaMalloc3D(&volume, extent));
    CUDA(cudaMemset3D(volume, 0x5a, extent));
    cudaMemcpy3DParms parms = {};
    parms.srcPtr = make_cudaPitchedPtr(a.data(), w, w, h);
    parms.dstPtr = volume;
    parms.extent = make_cudaExtent(w - 8, h - 2, depth);
    parms.dstPos = make_cudaPos(4, 1, 0);
    parms.kind = cudaMemcpyHostToDevice;
    CUDA(cudaMemcpy3D(&parms));
    parms = {};
    parms.srcPtr = volume;
    parms.dstPtr = make_cudaPitchedPtr(b.data(), w, w, h);
    parms.extent = extent;
    parms.kind = cudaMemcpyDefault;
    CUDA(cudaMemcpy3DAsync(&parms));
    CUDA(cudaDeviceSynchronize());
    for (int z = 0; z < depth; z++)
        for (int r = 0; r < h; r++)
            for (int i = 0; i < w; i++) {
                bool inside = i >= 4 && i < w - 4 && r >= 1 && r < h - 1;
                CHECK(b[(z * h + r) * w + i] == (inside ? a[(z * h + r - 1) * w + i - 4] : 0x5a));
            }

    // symbols
    int values[16] = {}, more[8];
    CUDA(cudaMemcpyFromSymbol(values, symbol, sizeof values));
    CHECK(values[0] == 1 && values[3] == 4 && values[4] == 0);
    int patch[2] = {50, 60};
    CUDA(cudaMemcpyToSymbol(symbol, patch, sizeof patch, 2 * sizeof(int)));
    for (int i = 0; i < 8; i++) more[i] = 100 * i;
    CUDA(cudaMemcpyToSymbol(constants, more, sizeof more));
    void *address;
    size_t size;
    CUDA(cudaGetSymbolAddress(&address, symbol));
    CUDA(cudaGetSymbolSize(&size, symbol));
    CHECK(size == sizeof values);
    CUDA(cudaMemcpyAsync(values, address, sizeof values, cudaMemcpyDeviceToHost));
    CUDA(cudaDeviceSynchronize());
    CHECK(values[1] == 2 && values[2] == 50 && values[3] == 60);
    int *out;
    CUDA(cudaMalloc(&out, 8 * sizeof(int)));
    from_constants<<<1, 8>>>(out);
    CUDA(cudaMemcpy(values, out, 8 * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(values[0] == 1 && values[2] == 250 && values[7] == 700);

    // large: over every threshold of staging
    const size_t big = 40 << 20;
    std::vector<unsigned> from(big / 4), to(big / 4);
    for (size_t i = 0; i < from.size(); i++) from[i] = (unsigned)(i * 2654435761u);
    unsigned char *g;
    CUDA(cudaMalloc(&g, big));
    CUDA(cudaMemcpy(g, from.data(), big, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(to.data(), g, big, cudaMemcpyDeviceToHost));
    CHECK(from == to);
    CUDA(cudaMemset(g, 1, big));
    CUDA(cudaMemcpy(to.data(), g, big, cudaMemcpyDeviceToHost));
    for (unsigned v : to) CHECK(v == 0x01010101u);
    puts("ok");
}
