#include "check.h"
#include <vector>

int main()
{
    const int w = 40, h = 12;
    std::vector<float> a(w * h), b(w * h);
    for (int i = 0; i < w * h; i++) a[i] = i * 1.5f;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(), got;
    cudaArray_t array, second;
    CUDA(cudaMallocArray(&array, &format, w, h));
    CUDA(cudaMallocArray(&second, &format, w, h));
    cudaExtent extent;
    unsigned flags;
    CUDA(cudaArrayGetInfo(&got, &extent, &flags, array));
    CHECK(got.x == 32 && got.f == cudaChannelFormatKindFloat && extent.width == w && extent.height == h && flags == 0);
    CUDA(cudaMemcpy2DToArray(array, 0, 0, a.data(), w * sizeof(float), w * sizeof(float), h, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy2DFromArray(b.data(), w * sizeof(float), array, 0, 0, w * sizeof(float), h, cudaMemcpyDeviceToHost));
    CHECK(a == b);
    CUDA(cudaMemcpy2DArrayToArray(second, 0, 0, array, 0, 0, w * sizeof(float), h, cudaMemcpyDeviceToDevice));
    float *d;
    CUDA(cudaMalloc(&d, w * h * sizeof(float)));
    CUDA(cudaMemcpy2DFromArray(d, w * sizeof(float), second, 4, 2, (w - 1) * sizeof(float), h - 2, cudaMemcpyDeviceToDevice));
    CUDA(cudaMemcpy(b.data(), d, w * h * sizeof(float), cudaMemcpyDeviceToHost));
    for (int r = 0; r < h - 2; r++)
        for (int i = 0; i < w - 1; i++) CHECK(b[r * w + i] == a[(r + 2) * w + i + 1]);
    CUDA(cudaFreeArray(array));
    CUDA(cudaFreeArray(second));
    puts("ok");
}
